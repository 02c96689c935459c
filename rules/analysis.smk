# Run records -> one tidy table of all runs. A run's own job writes its record; here records of older code are made again.

from study.core import code_version
from study.records import table_inputs


rule update_records:
    output:
        PLAN.updated,
    log:
        f"{OF_STUDY}/logs/update_records.log",
    localrule: True
    conda:
        ENVIRONMENT
    params:
        study=STUDY.name,
    message:
        "Check whether the records of finished runs are of this version of the code"
    shell:
        'python "$SCRIPTS/update_records.py" --study {params.study:q} --output {output:q}' " 2>&1 | tee {log:q}"


rule collect_records:
    input:
        lambda wildcards: PLAN.timed,
        ancient(PLAN.updated),
    output:
        runs=f"{OF_STUDY}/runs.csv",
        loading=f"{OF_STUDY}/loading.csv",
        attempts=f"{OF_STUDY}/attempts.csv",
    log:
        f"{OF_STUDY}/logs/collect_records.log",
    localrule: True
    conda:
        ENVIRONMENT
    params:
        study=STUDY.name,
        machine=MACHINE["name"],
        data=DATA,
        rows=lambda wildcards: to_json(table_inputs.collect_other_inputs(STUDY.runs, STUDY.loading, MACHINE)),
        code=code_version.digest_step_code("collect_records"),
    message:
        "Collect {config[study]}'s records on {config[machine]}"
    shell:
        'python "$SCRIPTS/collect_records.py" --study {params.study:q} --machine {params.machine:q}'
        " --data {params.data:q} --runs {output.runs:q} --loading {output.loading:q} --attempts {output.attempts:q}"
        " 2>&1 | tee {log:q}"

# Run -> run record -> one tidy table of all runs. Made anew whenever its code changes; nothing is trained for it.


rule read_timeline:
    input:
        f"{RUN}/outcome.json",
    output:
        communication=f"{RUN}/communication.json",
        activity=f"{RUN}/activity.csv",
    log:
        f"{RUN}/communication.log",
    localrule: True
    conda:
        ENVIRONMENT
    params:
        code=code_version.digest("read_timeline.py"),
    message:
        "Read the timeline of {wildcards.benchmark}: {wildcards.point}"
    shell:
        'python "$SCRIPTS/read_timeline.py" {input:q} --communication {output.communication:q}'
        " --activity {output.activity:q} 2>&1 | tee {log:q}"


rule make_record:
    input:
        outcome=f"{RUN}/outcome.json",
        communication=lambda wildcards: [f"{RUN}/communication.json"] if PLAN.run_of(wildcards)["trace"] else [],
    output:
        f"{RUN}/record.json",
    log:
        f"{RUN}/record.log",
    localrule: True
    conda:
        ENVIRONMENT
    params:
        planned=lambda wildcards: PLAN.defined(wildcards)["fingerprint"],
        code=code_version.digest("make_record.py"),
    message:
        "Record {wildcards.benchmark}: {wildcards.point}"
    shell:
        'python "$SCRIPTS/make_record.py" {input.outcome:q} --planned {params.planned:q} --output {output:q} 2>&1'
        " | tee {log:q}"


rule collect_records:
    input:
        PLAN.measured,
    output:
        runs=f"{OF_STUDY}/runs.csv",
        loading=f"{OF_STUDY}/loading.csv",
    log:
        f"{OF_STUDY}/logs/collect_records.log",
    localrule: True
    conda:
        ENVIRONMENT
    params:
        study=STUDY.name,
        machine=MACHINE["name"],
        rows=lambda wildcards: as_json(table_inputs.beside_records(STUDY.runs, STUDY.loading, MACHINE)),
        code=code_version.digest("collect_records.py"),
    message:
        "Collect {config[study]}'s records on {config[machine]}"
    shell:
        'python "$SCRIPTS/collect_records.py" --study {params.study:q} --machine {params.machine:q}'
        " --runs {output.runs:q} --loading {output.loading:q} 2>&1 | tee {log:q}"

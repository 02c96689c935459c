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
        "Read the timeline of {wildcards.benchmark}: {wildcards.scaling} scaling, {wildcards.gpus} ranks, {wildcards.loader}"
    shell:
        'python "$SCRIPTS/read_timeline.py" {input:q} --communication {output.communication:q}'
        " --activity {output.activity:q} 2>&1 | tee {log:q}"


rule make_record:
    input:
        outcome=f"{RUN}/outcome.json",
        communication=lambda wildcards: [f"{RUN}/communication.json"] if wildcards.trace == "true" else [],
    output:
        f"{RUN}/record.json",
    log:
        f"{RUN}/record.log",
    localrule: True
    conda:
        ENVIRONMENT
    params:
        code=code_version.digest("make_record.py"),
    message:
        "Record {wildcards.benchmark}: {wildcards.scaling} scaling, {wildcards.gpus} ranks, {wildcards.loader},"
        " staging {wildcards.staging}, repeat {wildcards.repeat}"
    shell:
        'python "$SCRIPTS/make_record.py" {input.outcome:q} --output {output:q} 2>&1 | tee {log:q}'


rule collect_records:
    input:
        RECORDS,
        [paths.loading(RESULTS, measurement.dataset) for measurement in STUDY.loading],
    output:
        runs=f"{RESULTS}/runs.csv",
        loading=f"{RESULTS}/loading.csv",
    log:
        f"{RESULTS}/logs/collect_records.log",
    localrule: True
    conda:
        ENVIRONMENT
    params:
        study=STUDY.name,
        may_fail=as_json({run.directory: run.may_fail for run in STUDY.runs if run.may_fail}),
        folder=lambda wildcards, output: os.path.dirname(output.runs),
        code=code_version.digest("collect_records.py"),
        loading_code=code_version.loading_code(),
        training_code=[code_version.training_code(name) for name in grid.benchmarks_of(STUDY)],
    message:
        "Collect {config[study]}'s records on {config[machine]}"
    shell:
        'python "$SCRIPTS/collect_records.py" --study {params.study} --folder {params.folder:q} 2>&1 | tee {log:q}'

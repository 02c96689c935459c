# Run -> run record -> one tidy table of all runs. Made anew whenever its code changes; nothing is trained for it.


rule make_record:
    message:
        "Record {wildcards.benchmark}: {wildcards.scaling} scaling, {wildcards.gpus} ranks, {wildcards.loader},"
        " repeat {wildcards.repeat}"
    input:
        f"{RUN}/outcome.json",
    output:
        f"{RUN}/record.json",
    params:
        folder=RUN,
        code=code_version.digest("make_record.py"),
    log:
        f"{RUN}/record.log",
    conda:
        ENVIRONMENT
    shell:
        "python {SCRIPTS}/make_record.py {params.folder:q} --output {output:q} 2>&1 | tee {log:q}"


rule collect_records:
    message:
        "Collect {config[study]}'s records on {config[machine]}"
    input:
        [paths.record(RESULTS, run.directory) for run in STUDY.runs],
        [paths.loading(RESULTS, measurement.dataset) for measurement in STUDY.loading],
    output:
        runs=f"{RESULTS}/runs.csv",
        loading=f"{RESULTS}/loading.csv",
    params:
        study=STUDY.name,
        folder=RESULTS,
        code=code_version.digest("collect_records.py"),
        training_code=[code_version.training_code(name) for name in grid.benchmarks_of(STUDY)],
    log:
        f"{RESULTS}/logs/collect_records.log",
    conda:
        ENVIRONMENT
    shell:
        "python {SCRIPTS}/collect_records.py --study {params.study} --folder {params.folder:q} 2>&1 | tee {log:q}"

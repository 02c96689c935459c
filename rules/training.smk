# Converted dataset -> run. A run that fails still has its outcome; only what could not be started fails the job.


rule train:
    input:
        lambda wildcards: definition.run_inputs(run_of(wildcards), DATA),
    output:
        f"{RUN}/outcome.json",
    log:
        f"{RUN}/train.log",
    retries: RETRIES
    group:
        lambda wildcards: packing.group(int(wildcards.gpus), MACHINE)
    conda:
        ENVIRONMENT
    threads: TIMED_THREADS
    resources:
        **queues.resources(lambda wildcards: int(wildcards.gpus), MACHINE, os.environ),
        time_limit_s=MACHINE["time_limit_s"],
        stall_limit_s=MACHINE.get("stall_limit_s", heartbeats.LIMIT_S),
        jobs_lost=lambda wildcards, attempt: attempt - 1,
    params:
        # Tells Snakemake when a run is no longer the same, and the command, which makes the definition anew.
        fingerprint=lambda wildcards: definition.fingerprint(
            definition.run_definition(run_of(wildcards), MACHINE, DATA)
        ),
    message:
        "Train {wildcards.benchmark}: {wildcards.scaling} scaling, {wildcards.gpus} ranks, {wildcards.loader},"
        " staging {wildcards.staging}, batch {wildcards.batch_size}, repeat {wildcards.repeat}"
    shell:
        'python "$SCRIPTS/launch_training.py" --study $STUDY --machine $MACHINE --data-dir "$DATA_DIR"'
        " --fingerprint {params.fingerprint} --time-limit-s {resources.time_limit_s} --stall-limit-s {resources.stall_limit_s} --jobs-lost {resources.jobs_lost}"
        " --outcome {output:q}"

# Converted dataset -> run. A run that fails still has its outcome; only what could not be started fails the job.


rule train:
    input:
        lambda wildcards: inputs.run_inputs(run_of(wildcards), MACHINE, DATA),
    output:
        f"{RUN}/outcome.json",
    log:
        f"{RUN}/train.log",
    priority: lambda wildcards: PRIORITIES[run_of(wildcards).directory]
    retries: RETRIES
    group:
        GROUP
    conda:
        ENVIRONMENT
    threads: TIMED_THREADS
    resources:
        **queues.resources(lambda wildcards: run_of(wildcards).processes_on(MACHINE), MACHINE, os.environ, time_limit_s),
        time_limit_s=time_limit_s if "scheduler" in MACHINE else MACHINE["time_limit_s"],
        extendable=EXTENDABLE,
        stall_limit_s=MACHINE.get("stall_limit_s", heartbeats.LIMIT_S),
        calibrated=int(CALIBRATED),
        jobs_lost=JOBS_LOST,
    params:
        # All that the run needs, without defaults: where it changes, Snakemake trains again.
        definition=lambda wildcards: defined(wildcards)["definition"],
    message:
        "Train {wildcards.benchmark}: {wildcards.point}"
    shell:
        'python "$SCRIPTS/launch_training.py" --definition {params.definition:q}'
        " --time-limit-s {resources.time_limit_s:q} --stall-limit-s {resources.stall_limit_s:q} --jobs-lost {resources.jobs_lost:q}"
        " --extendable {resources.extendable:q}"
        " --calibrated {resources.calibrated:q} --outcome {output:q}"

# Converted dataset -> run, with its record beside it. A run that fails still has its outcome; only what could not be
# started fails the job. The record is no output: it can be made again from the run's files, without training.


rule train:
    input:
        lambda wildcards: inputs.run_inputs(PLAN.run_of(wildcards), MACHINE, DATA),
    output:
        f"{RUN}/outcome.json",
    log:
        f"{RUN}/train.log",
    priority: lambda wildcards: PLAN.priorities[PLAN.run_of(wildcards).directory]
    retries: PLAN.retries
    group:
        PLAN.group
    conda:
        ENVIRONMENT
    threads: PLAN.timed_threads
    resources:
        **PLAN.resources(),
    params:
        # All that the run needs, without defaults: where it changes, Snakemake trains again.
        definition=lambda wildcards: PLAN.definition(wildcards),
    message:
        "Train {wildcards.benchmark}: {wildcards.point}"
    shell:
        'python "$SCRIPTS/launch_training.py" --definition {params.definition:q}'
        " --time-limit-s {resources.time_limit_s:q} --stall-limit-s {resources.stall_limit_s:q} --jobs-lost {resources.jobs_lost:q}"
        " --extendable {resources.extendable:q}"
        " --calibrated {resources.calibrated:q} --outcome {output:q}"

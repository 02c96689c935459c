# Converted dataset -> run, with its record beside it. A run that fails still has its outcome; only what could not be
# started fails the job. The record is no output: it can be made again from the run's files, without training.


rule train:
    input:
        # Neither times nor what Snakemake noted decide whether a finished run trains again: see study.experiment.finished_runs.
        lambda wildcards: PLAN.list_run_inputs(wildcards),
    output:
        # The outcome is not removed before its job: another Snakemake may have made it meanwhile.
        update(f"{RUN}/outcome.json"),
    log:
        # Why a run could not be started. Its own train.log is a result, which Snakemake must not remove.
        f"{RESULTS}/logs/train/{{benchmark}}/{{dataset}}/{{point}}.log",
    priority: lambda wildcards: PLAN.priorities[PLAN.get_run(wildcards).directory]
    retries: PLAN.retries
    group:
        PLAN.group
    conda:
        ENVIRONMENT
    threads: PLAN.threads
    resources:
        **PLAN.make_resources(),
    params:
        # All that the run needs, without defaults.
        definition=lambda wildcards: PLAN.define_run_as_json(wildcards),
    message:
        "Train {wildcards.benchmark}: {wildcards.point}"
    shell:
        'python "$SCRIPTS/launch_training.py" --definition {params.definition:q}'
        " --time-limit-s {resources.time_limit_s:q} --stall-limit-s {resources.stall_limit_s:q} --jobs-lost {resources.jobs_lost:q}"
        " --extendable {resources.extendable:q}"
        " --outcome {output:q} --log {log:q}"

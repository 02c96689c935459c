# The study, stage by stage. What is studied is in config/, how each step works is in scripts/.


configfile: "config/config.yaml"


report: "rules/report/workflow.rst"


include: "rules/common.smk"
include: "rules/loading.smk"
include: "rules/training.smk"


if not IS_JOB:

    include: "rules/datasets.smk"
    include: "rules/analysis.smk"
    include: "rules/results.smk"
    include: "rules/exports.smk"
    include: "rules/prediction.smk"
    include: "rules/check.smk"

    rule all:
        default_target: True
        input:
            lambda wildcards: PLAN.list_outcomes(STUDY.runs),
            PLAN.shown_early,
            PLAN.result_files,
        message:
            "The tables and figures of {config[study]} on {config[machine]}"

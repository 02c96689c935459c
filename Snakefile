# The study, stage by stage. What is studied is in config/, how each step works is in scripts/.


configfile: "config/config.yaml"


include: "rules/common.smk"
include: "rules/datasets.smk"
include: "rules/loading.smk"
include: "rules/training.smk"
include: "rules/analysis.smk"
include: "rules/results.smk"


rule all:
    default_target: True
    input:
        RECORDS,
        TABLES,
    message:
        "The tables of {config[study]} on {config[machine]}"

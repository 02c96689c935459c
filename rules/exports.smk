# Runs and results -> the formats of other tools, a folder for each that the study declares. Needs none of their packages.

from study.core import code_version


rule make_export:
    input:
        lambda wildcards: PLAN.list_export_inputs(wildcards),
    output:
        directory(f"{OF_STUDY}/exports/{{export}}"),
    log:
        f"{OF_STUDY}/logs/exports/{{export}}.log",
    wildcard_constraints:
        export="[^/]+",
    localrule: True
    conda:
        ENVIRONMENT
    params:
        study=STUDY.name,
        code=code_version.digest_step_code("make_export", "study.contrib.exports"),
    message:
        "Export {wildcards.export}"
    shell:
        'python "$SCRIPTS/make_export.py" --export {wildcards.export:q} --study {params.study:q} --output {output:q}'
        " 2>&1 | tee {log:q}"

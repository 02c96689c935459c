# Run records that exist -> comparison with the performance references. Starts no run, so records are no inputs.

from pathlib import Path

from study.core import code_version
from study.compare import references
from study.records.stamp import stamp


rule check_references:
    output:
        [f"{OF_STUDY}/check/performance_check.{form}" for form in ("csv", "md", "tex", "html")],
    log:
        f"{OF_STUDY}/logs/check.log",
    localrule: True
    conda:
        ENVIRONMENT
    params:
        study=STUDY.name,
        machine=MACHINE["name"],
        results=lambda wildcards, output: Path(output[0]).parents[4],
        folder=lambda wildcards, output: Path(output[0]).parent,
        measured=lambda wildcards: stamp(PLAN.measured),
        accepted=lambda wildcards: stamp([references.build_path(MACHINE["name"], STUDY.name)]),
        declared=[str(each) for each in STUDY.references],
        code=code_version.digest_step_code("check"),
    message:
        "Compare {config[study]} on {config[machine]} with its performance references"
    shell:
        'python "$SCRIPTS/check.py" --study {params.study:q} --machine {params.machine:q} --only-report'
        " --results-dir {params.results:q} --output {params.folder:q} 2>&1 | tee {log:q}"

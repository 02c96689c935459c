# Run records that exist -> predictions and a recommendation for a goal. Starts no run, so records are no inputs.

import dataclasses
from pathlib import Path

from study.core import code_version
from study.prediction import goals, scaling_model
from study.records.stamp import stamp


rule recommend:
    output:
        [
            f"{OF_STUDY}/recommendation/{{goal}}/{table}.{form}"
            for table in ("recommendation", "prediction", "prediction_check")
            for form in ("csv", "md", "tex", "html")
        ],
        [f"{OF_STUDY}/recommendation/{{goal}}/prediction_curves.{form}" for form in ("svg", "pdf")],
    log:
        f"{OF_STUDY}/logs/recommendation/{{goal}}.log",
    localrule: True
    conda:
        ENVIRONMENT
    params:
        study=STUDY.name,
        machine=MACHINE["name"],
        results=lambda wildcards, output: Path(output[0]).parents[5],
        folder=lambda wildcards, output: Path(output[0]).parent,
        records=lambda wildcards: stamp(PLAN.list_records(STUDY.runs)),
        goal=lambda wildcards: to_json(dataclasses.asdict(goals.load(wildcards.goal))),
        calibration=lambda wildcards: to_json(scaling_model.load_calibration()),
        code=code_version.digest_step_code("recommend"),
    message:
        "Recommend a rank count for the goal {wildcards.goal}"
    shell:
        'python "$SCRIPTS/recommend.py" --study {params.study:q} --machine {params.machine:q} --goal {wildcards.goal:q}'
        " --results-dir {params.results:q} --output {params.folder:q} 2>&1 | tee {log:q}"

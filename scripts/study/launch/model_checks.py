"""The models of own benchmarks are checked before the first run, in one process for all runs of a study.

That process loads TensorFlow, which the plan does not: 5 CPU seconds, and one more for each kind of run. A dry run and
the start of a study each do it. What the first one found is not kept for the second: a model may import and read
anything, so that no digest tells whether it is still the same. The shipped benchmarks are checked by the tests.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from study import workloads
from study.core import commands, environment
from study.core.paths import SCRIPTS
from study.core.wording import counted
from study.experiment import inputs
from study.experiment.study import Dataset, PlannedRun, Study
from study.workloads import command

SHIPPED = frozenset({"alexnet", "alexnet_one_tower", "googlenet", "inception_v1", "lenet", "lenet_classic", "nt3",
                     "p1b1", "p1b2", "p1b3", "resnet101", "resnet50", "vgg_a"})  # fmt: skip
LIMIT_S = 300
MARK = "CHECKED "
# Grid keys on which it depends whether a model keeps what is promised.
KEYS = ("framework", "strategy", "checkpoint_epochs", "backward_passes_per_step", "precision", "data_format",
        "emulated_ranks", "learning_rate_by_layer")  # fmt: skip


def refusals(study: Study, machine: dict[str, Any], data_dir: str) -> tuple[list[str], list[str]]:
    """(Reasons why runs of own benchmarks cannot be trained, warnings of those that could not be checked)."""
    shapes = [(run, _shape(run.dataset)) for run in _representatives(study)]
    checked = [run for run, shape in shapes if shape]
    cases = [
        {"definition": inputs.handed_over(inputs.define(run, machine, data_dir)), "shape": shape}
        for run, shape in shapes
        if shape
    ]
    warnings = list(dict.fromkeys(_not_checked(run.dataset) for run, shape in shapes if not shape))
    if not cases:
        return [], warnings
    found, why = _asked(cases, machine)
    if why:
        return [], [*warnings, f"models are checked when their runs start: {why}"]
    refused: dict[str, int] = {}
    for run, reason in zip(checked, found, strict=True):
        if isinstance(reason, dict):
            warnings.append(f"the model of {run.dataset.benchmark} is checked when its runs start: {reason['failed']}")
        elif reason:
            refused[reason] = refused.get(reason, 0) + sum(_alike(run) == _alike(other) for other in study.runs)
    where = f"config/studies/{study.name}.yaml"
    return [f"{where}: {reason} ({counted(number, 'run')})" for reason, number in refused.items()], warnings


def _representatives(study: Study) -> list[PlannedRun]:
    """One run of each kind that a check may judge differently; none of a command, which has no model of ours."""
    own = (run for run in study.runs if run.dataset.benchmark not in SHIPPED and run.kind != command.KIND)
    return list({_alike(run): run for run in own}.values())


def _alike(run: PlannedRun) -> str:
    own = [
        run.dataset.benchmark,
        run.dataset.id,
        run.batch_size_per_rank,
        min(run.gpus, 2),
        *(run[key] for key in KEYS),
    ]
    return json.dumps(own)


def _shape(dataset: Dataset) -> dict[str, int] | None:
    """The size of a dataset as far as a model depends on it; None if it is not known yet."""
    if "image" in dataset.definition["source"]:
        return dataset.shape or {"features": 0}
    return dataset.shape or _of_own_files(dataset)


def _of_own_files(dataset: Dataset) -> dict[str, int] | None:
    """The number of features by the width of the user's files; None without them, or if they do not agree on it."""
    workload = workloads.get(dataset.benchmark, dataset.spec)
    found = set()
    for file, form in dataset.spec["files"].items():
        if (columns := dataset.columns(file)) is not None and "split" in form:
            features = columns - len(form.get("codes", [])) - len(form.get("drop", []))
            shape = {"train_samples": 0, "test_samples": 0, "features": features}
            found.add(features if workload.expected_shape(file, shape)[1] == columns else 0)
    return {"features": found.pop()} if len(found) == 1 and min(found) > 0 else None


def _not_checked(dataset: Dataset) -> str:
    """That a model is not checked before its runs, since the number of features is not known, and how it can be."""
    name = dataset.benchmark
    if dataset.definition["source"] == "url":
        how = f"give shape in config/benchmarks/{name}.yaml"
    else:
        how = "make a dry run of a study with source: synthetic and as many features"
    return (
        f"the model of {name} is checked when its runs start, since the number of features of dataset {dataset.key} is "
        f"not known yet; to check it before, {how}"
    )


def _asked(cases: list[dict[str, Any]], machine: dict[str, Any]) -> tuple[list[Any], str | None]:
    """(What the process says of each case, why it says nothing)."""
    variables = {**environment.measuring(os.environ), **machine.get("environment", {}), "TF_CPP_MIN_LOG_LEVEL": "3"}
    line = [sys.executable, str(SCRIPTS / "check_models.py")]
    try:
        done = commands.run(line, LIMIT_S, variables, json.dumps(cases))
    except subprocess.TimeoutExpired:
        return [], f"building them took over {LIMIT_S} s"
    told = [each for each in done.stdout.splitlines() if each.startswith(MARK)]
    if done.returncode or not told:
        last = (done.stderr.strip() or "no message").splitlines()[-1]
        return [], f"building them ended with exit code {done.returncode} ({last})"
    return json.loads(told[-1].removeprefix(MARK)), None

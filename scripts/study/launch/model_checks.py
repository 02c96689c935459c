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
from study.core.wording import format_count
from study.experiment import inputs
from study.experiment.study import Dataset, PlannedRun, Study
from study.workloads import command

SHIPPED = frozenset({"alexnet", "alexnet_one_tower", "googlenet", "inception_v1", "lenet", "lenet_classic", "nt3",
                     "p1b1", "p1b2", "p1b3", "resnet101", "resnet50", "vgg_a"})  # fmt: skip
LIMIT_S = 300
MARK = "CHECKED "
# Grid keys on which it depends whether a model keeps what is promised.
KEYS = ("framework", "strategy", "checkpoint_epochs", "backward_passes_per_step", "precision",
        "emulated_ranks")  # fmt: skip


def list_refusals(study: Study, machine: dict[str, Any], data_dir: str) -> tuple[list[str], list[str]]:
    """(Reasons why runs of own benchmarks cannot be trained, warnings about models that could not be checked)."""
    shapes = [(run, _find_shape(run.dataset)) for run in _choose_representatives(study)]
    checked = [run for run, shape in shapes if shape]
    cases = [
        {
            "definition": inputs.to_param(inputs.define_run(run, machine, data_dir)),
            "shape": shape,
            "last_batch": _count_last_batch(run),
        }
        for run, shape in shapes
        if shape
    ]
    warnings = list(dict.fromkeys(_explain_unchecked(run.dataset) for run, shape in shapes if not shape))
    if not cases:
        return [], warnings
    answers, fault = _run_checks(cases, machine)
    if fault:
        return [], [*warnings, f"models are checked when their runs start: {fault}"]
    refused: dict[str, int] = {}
    for run, reason in zip(checked, answers, strict=True):
        if isinstance(reason, dict):
            warnings.append(f"the model of {run.dataset.benchmark} is checked when its runs start: {reason['failed']}")
        elif reason:
            refused[reason] = refused.get(reason, 0) + sum(
                _make_kind_key(run) == _make_kind_key(other) for other in study.runs
            )
    where = f"config/studies/{study.name}.yaml"
    return [f"{where}: {reason} ({format_count(number, 'run')})" for reason, number in refused.items()], warnings


def _choose_representatives(study: Study) -> list[PlannedRun]:
    """One run of each kind that the check may judge differently; none of a command, which has no model of ours."""
    own = (run for run in study.runs if run.dataset.benchmark not in SHIPPED and run.kind != command.KIND)
    return list({_make_kind_key(run): run for run in own}.values())


def _make_kind_key(run: PlannedRun) -> str:
    """A text that is equal for runs whose models the check judges alike."""
    parts = [
        run.dataset.benchmark,
        run.dataset.id,
        run.batch_size_per_rank,
        min(run.gpus, 2),
        _count_last_batch(run) == 1,
        *(run[key] for key in KEYS),
    ]
    return json.dumps(parts)


def _count_last_batch(run: PlannedRun) -> int | None:
    """Samples of the last batch of a rank in an epoch; None if known only from the files."""
    samples = run.samples_per_rank
    return None if samples is None else samples % run.batch_size_per_rank or run.batch_size_per_rank


def _find_shape(dataset: Dataset) -> dict[str, int] | None:
    """The shape of a dataset as far as a model depends on it; None if it is not known yet."""
    if "image" in dataset.definition["source"]:
        return dataset.shape or {"features": 0}
    return dataset.shape or _count_features_in_files(dataset)


def _count_features_in_files(dataset: Dataset) -> dict[str, int] | None:
    """The number of features by the width of the user's files; None if there are none, or they disagree."""
    workload = workloads.load_workload(dataset.benchmark, dataset.spec)
    feature_counts = set()
    for file, form in dataset.spec["files"].items():
        if (columns := dataset.count_columns(file)) is not None and "split" in form:
            features = columns - len(form.get("codes", [])) - len(form.get("drop", []))
            shape = {"train_samples": 0, "test_samples": 0, "features": features}
            feature_counts.add(features if workload.expected_shape(file, shape)[1] == columns else 0)
    return {"features": feature_counts.pop()} if len(feature_counts) == 1 and min(feature_counts) > 0 else None


def _explain_unchecked(dataset: Dataset) -> str:
    """The warning that a model of unknown input width is checked only when its runs start, with the remedy."""
    name = dataset.benchmark
    if dataset.definition["source"] == "url":
        remedy = f"give shape in config/benchmarks/{name}.yaml"
    else:
        remedy = "make a dry run of a study with source: synthetic and as many features"
    return (
        f"the model of {name} is checked when its runs start, since the number of features of dataset {dataset.key} is "
        f"not known yet; to check it before, {remedy}"
    )


def _run_checks(cases: list[dict[str, Any]], machine: dict[str, Any]) -> tuple[list[Any], str | None]:
    """(Answer to each case from a process that builds the models, the reason if it gave none)."""
    variables = {
        **environment.build_measuring_environment(os.environ),
        **machine.get("environment", {}),
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }
    line = [sys.executable, str(SCRIPTS / "check_models.py")]
    try:
        process = commands.run_program(line, LIMIT_S, variables, json.dumps(cases))
    except subprocess.TimeoutExpired:
        return [], f"building them took over {LIMIT_S} s"
    answers = [each for each in process.stdout.splitlines() if each.startswith(MARK)]
    if process.returncode or not answers:
        last = (process.stderr.strip() or "no message").splitlines()[-1]
        return [], f"building them ended with exit code {process.returncode} ({last})"
    return json.loads(answers[-1].removeprefix(MARK)), None

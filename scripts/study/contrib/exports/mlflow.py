"""A study's runs and findings as MLflow's file store: a folder per experiment, in it a folder per run.

Grid keys and what follows from them are parameters, what was measured are metrics, the rest of a row of ``runs.csv``
are tags. Ids follow from the machine, the study and the run's folder: exporting again replaces the runs and adds none.
Needs no package of MLflow.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from study.contrib.exports import kinds
from study.core import checked, fields
from study.core.csv_columns import read_columns
from study.core.csv_files import NUMBER
from study.core.errors import StudyError
from study.core.files import AnyPath, write_text
from study.core.wording import counted
from study.experiment import applicable
from study.experiment.definition import RunDefinition
from study.experiment.identity import filled
from study.experiment.parameters import PARAMETERS
from study.experiment.undeclared import undeclared
from study.records import own_keys, tidy

META, ARTIFACTS, METRICS, PARAMS, TAGS = "meta.yaml", "artifacts", "metrics", "params", "tags"
FINISHED, FAILED = 3, 4  # statuses of a run
LOCAL = 4  # source type
NOTE, RUN_NAME, COMMIT = "mlflow.note.content", "mlflow.runName", "mlflow.source.git.commit"
OWN = "study.record"  # tag of each run of this export: its record, or the findings' file
# Sections of what was asked for, which are parameters, and of others whose numbers were not measured, which are tags.
ASKED = ("derived", "benchmark", "workload", "Files")
NOT_MEASURED = ("Point", "Outcome", "Provenance")
CHECKSUM = "crc32"
SHOW = "MLFLOW_ALLOW_FILE_STORE=true mlflow ui --backend-store-uri"  # MLflow 3.17 reads files only if it is told to
Point = tuple[int, float, int]  # ms since 1970, value, step


@dataclass
class StoredRun:
    """What is stored of a run. times: begin and end in ms since 1970, None where they are not known."""

    name: str
    status: int
    times: tuple[int | None, int | None]
    params: dict[str, str] = field(default_factory=dict)
    metrics: dict[str, list[Point]] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    artifacts: tuple[Path, ...] = ()


@kinds.of_study("mlflow", title="runs and findings as a file store of MLflow", file="mlruns", is_folder=True)
def export(results: kinds.Results, path: Path) -> str:
    """Write the experiment of a study into the store ``path``; as `write`."""
    experiment, number = write(results.folder, results.of_machine, path)
    return f"{experiment}: {counted(number, 'run')}; see them with: {SHOW} {path}"


def write(study_folder: AnyPath, results: AnyPath, store: AnyPath) -> tuple[Path, int]:
    """Write the experiment of a study; returns its folder and the number of its runs.

    Args:
        study_folder: with ``runs.csv``, and ``findings.json`` if the study declares findings.
        results: of the machine, ``results/<machine>``.
        store: the store's folder, such as ``mlruns``; other experiments in it stay.

    Raises:
        StudyError: a file is damaged.
    """
    folder, results, store = Path(study_folder), Path(results), Path(store)
    frame = tidy.read_runs(folder / "runs.csv")
    runs = [_of_row(row, results) for row in frame.to_dict("records")]
    findings = folder / "findings.json"
    if findings.is_file() and findings not in undeclared(folder):
        runs.append(_of_findings(findings, runs))
    name = f"{results.name}/{folder.name}"
    number = str(10**17 + int(_digest(name), 16) % (9 * 10**17))  # 18 digits, as MLflow's
    experiment = store / number
    ids = {_digest(name, each.tags[OWN])[:32]: each for each in runs}
    begins = [each.times[0] for each in runs if each.times[0] is not None]
    ends = [each.times[1] for each in runs if each.times[1] is not None]
    content = {
        "artifact_location": experiment.resolve().as_uri(),
        "creation_time": min(begins, default=0),
        "experiment_id": number,
        "last_update_time": max(ends, default=0),
        "lifecycle_stage": "active",
        "name": name,
    }
    write_text(experiment / META, _yaml(content))
    for identity, each in ids.items():
        _write_run(experiment, identity, each)
    for other in experiment.iterdir():
        if other.name not in ids and (other / TAGS / OWN).is_file():  # of a run that the study no longer has
            shutil.rmtree(other)
    return experiment, len(ids)


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _yaml(content: Mapping[str, Any]) -> str:
    """Lines of YAML, whose values are JSON."""
    return "".join(f"{name}: {json.dumps(value)}\n" for name, value in content.items())


def _write_run(experiment: Path, identity: str, run: StoredRun) -> None:
    """Write a run's folder whole, in the place of the one that an earlier export wrote."""
    final, aside = experiment / identity, experiment / f".{identity}.{os.getpid()}"
    shutil.rmtree(aside, ignore_errors=True)
    begin, end = run.times
    content: dict[str, Any] = {
        "artifact_uri": (final / ARTIFACTS).resolve().as_uri(),
        "end_time": end,
        "entry_point_name": "",
        "experiment_id": experiment.name,
        "lifecycle_stage": "active",
        "run_id": identity,
        "run_name": run.name,
        "run_uuid": identity,
        "source_name": "",
        "source_type": LOCAL,
        "source_version": "",
        "start_time": begin,
        "status": run.status,
        "tags": [],
        "user_id": "",
    }
    texts = {f"{METRICS}/{name}": "".join(f"{at} {value!r} {step}\n" for at, value, step in points)
             for name, points in run.metrics.items()}  # fmt: skip
    texts |= {
        f"{kind}/{name}": text for kind, of in ((PARAMS, run.params), (TAGS, run.tags)) for name, text in of.items()
    }
    try:
        for name in (ARTIFACTS, METRICS, PARAMS, TAGS):
            (aside / name).mkdir(parents=True)
        for name, text in {META: _yaml(content), **texts}.items():
            (aside / name).parent.mkdir(parents=True, exist_ok=True)
            (aside / name).write_text(text, encoding="utf-8")
        for path in run.artifacts:
            shutil.copyfile(path, aside / ARTIFACTS / path.name)
        if final.exists():
            shutil.rmtree(final)
        aside.replace(final)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _of_row(row: Mapping[Any, Any], results: Path) -> StoredRun:
    """A row of ``runs.csv``, and the epochs of its run."""
    record = Path(row["record"])
    lacking = {own_keys.LACKING, own_keys.REASON, *_lacking((results / record).with_name("run.yaml"))}
    params, values, tags = _parted({str(name): value for name, value in row.items() if name not in lacking})
    begin = None if _is_missing(row.get("started_wall_ns")) else round(row["started_wall_ns"] / 1e6)
    end = None if begin is None or _is_missing(row.get("runtime_s")) else begin + round(row["runtime_s"] * 1e3)
    at = end or begin or 0
    metrics = {name: [(at, value, 0)] for name, value in values.items()}
    metrics |= _of_epochs((results / record).with_name("history.csv"), at)
    name = record.parent.as_posix().removeprefix("runs/")
    tags |= {RUN_NAME: name, OWN: record.as_posix(), "mlflow.source.type": "LOCAL"}
    if "git_commit" in tags:
        tags[COMMIT] = tags["git_commit"]
    if "failure_message" in tags:
        tags[NOTE] = tags["failure_message"]
    return StoredRun(name, FINISHED if row["status"] == "ok" else FAILED, (begin, end), params, metrics, tags)


def _parted(row: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, float], dict[str, str]]:
    """The parameters, metrics and tags in a row; what is empty is left out."""
    asked = {each.column for name in ASKED for each in fields.section(name).fields}
    others = {each.column for name in NOT_MEASURED for each in fields.section(name).fields}
    params: dict[str, str] = {}
    metrics: dict[str, float] = {}
    tags: dict[str, str] = {}
    for name, value in row.items():
        if _is_missing(value):
            continue
        if name in PARAMETERS or name in asked:
            params[name] = str(value)
        elif name in others or name.endswith(CHECKSUM) or not _is_number(value):
            tags[name] = str(value)
        elif math.isfinite(value):
            metrics[name] = float(value)
    return params, metrics, tags


def _lacking(definition: Path) -> set[str]:
    """The columns that say nothing about a run, by its ``run.yaml``; none where that is missing or cannot be read."""
    try:
        run = RunDefinition.read(definition)
    except StudyError:
        return set()
    return applicable.lacking(filled(run.parameters), run.benchmark)


def _is_missing(value: Any) -> bool:
    return value is None or value == "" or bool(pd.isna(value))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool | np.bool_)


def _of_epochs(path: Path, at: int) -> dict[str, list[Point]]:
    """The columns of ``history.csv`` by epoch, at the epoch's end where that is known; none without the file."""
    if not path.is_file() or not path.stat().st_size:
        return {}
    found = read_columns(path, {}, others=lambda _: NUMBER)
    if "epoch" not in found:
        return {}
    ended = (
        (found["begin_wall_ns"] / 1e6 + found["time_s"] * 1e3) if {"begin_wall_ns", "time_s"} <= set(found) else None
    )
    metrics: dict[str, list[Point]] = {}
    for name in found:
        if name == "epoch" or name.endswith(("_ns", CHECKSUM)):
            continue
        for place, value in enumerate(found[name].tolist()):
            moment = at if ended is None or not math.isfinite(ended[place]) else round(ended[place])
            if math.isfinite(value):
                metrics.setdefault(f"epoch/{name}", []).append((moment, value, int(found["epoch"][place])))
    return metrics


def _of_findings(path: Path, runs: Iterable[StoredRun]) -> StoredRun:
    """The findings of the study as a run of their own: estimates and ends of intervals, verdicts as tags."""
    found = checked.load_json(path, "study_findings")["findings"]
    at = max((each.times[1] for each in runs if each.times[1] is not None), default=0)
    stored = StoredRun("findings", FINISHED, (at, at), artifacts=(path,))
    for each in found:
        for part in ("estimate", "low", "high", "blocks"):
            if each[part] is not None:
                stored.metrics[f"finding/{each['name']}/{part}"] = [(at, float(each[part]), 0)]
        stored.tags[f"finding.{each['name']}"] = each["verdict"]
    note = "\n".join(f"- {each['title']}: {each['sentence']}" for each in found)
    stored.tags |= {RUN_NAME: stored.name, OWN: path.name, **({NOTE: note} if note else {})}
    return stored

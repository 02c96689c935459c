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

from study.compare import failed_runs
from study.contrib.exports import kinds
from study.core import fields, validation
from study.core.csv_columns import read_columns
from study.core.csv_files import NUMBER
from study.core.errors import StudyError
from study.core.files import AnyPath, write_text
from study.core.wording import format_count
from study.experiment import applicability
from study.experiment.definition import RunDefinition
from study.experiment.identity import fill_defaults
from study.experiment.parameters import PARAMETERS
from study.experiment.undeclared_results import list_undeclared_results
from study.records import own_keys, tidy

META, ARTIFACTS, METRICS, PARAMS, TAGS = "meta.yaml", "artifacts", "metrics", "params", "tags"
FINISHED, FAILED = 3, 4  # statuses of a run
LOCAL = 4  # source type
NOTE, RUN_NAME, COMMIT = "mlflow.note.content", "mlflow.runName", "mlflow.source.git.commit"
OWNER_TAG = "study.record"  # tag of each run of this export: its record, or the findings' file
# Sections of what was asked for, which are parameters, and of others whose numbers were not measured, which are tags.
PARAMETER_SECTIONS = ("derived", "benchmark", "workload", "Files")
TAG_SECTIONS = ("Point", "Outcome", "Provenance")
CHECKSUM = "crc32"
SHOW = "MLFLOW_ALLOW_FILE_STORE=true mlflow ui --backend-store-uri"  # MLflow 3.17 reads files only if it is told to
Point = tuple[int, float, int]  # ms since 1970, value, step


@dataclass
class StoredRun:
    """A run of MLflow's store. times: begin and end in ms since 1970, None where they are not known."""

    name: str
    status: int
    times: tuple[int | None, int | None]
    params: dict[str, str] = field(default_factory=dict)
    metrics: dict[str, list[Point]] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    artifacts: tuple[Path, ...] = ()


@kinds.register_study_export("mlflow", "runs and findings as a file store of MLflow", file="mlruns", is_folder=True)
def export(results: kinds.Results, path: Path) -> str:
    """Write the experiment of a study into the store ``path``; returns a line for the user."""
    experiment, number = write_experiment(results.folder, results.machine_folder, path)
    return f"{experiment}: {format_count(number, 'run')}; see them with: {SHOW} {path}"


def write_experiment(study_folder: AnyPath, results: AnyPath, store: AnyPath) -> tuple[Path, int]:
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
    runs = [_make_run(row, results) for row in frame.to_dict("records")]
    findings = folder / "findings.json"
    if findings.is_file() and findings not in list_undeclared_results(folder):
        runs.append(_make_findings_run(findings, runs))
    name = f"{results.name}/{folder.name}"
    number = str(10**17 + int(_compute_digest(name), 16) % (9 * 10**17))  # 18 digits, as MLflow's
    experiment = store / number
    ids = {_compute_digest(name, each.tags[OWNER_TAG])[:32]: each for each in runs}
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
    write_text(experiment / META, _format_yaml(content))
    for identity, each in ids.items():
        _write_run(experiment, identity, each)
    for other in experiment.iterdir():
        if other.name not in ids and (other / TAGS / OWNER_TAG).is_file():  # of a run that the study no longer has
            shutil.rmtree(other)
    return experiment, len(ids)


def _compute_digest(*parts: str) -> str:
    """Compute the SHA-256 of texts, as hex digits."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _format_yaml(content: Mapping[str, Any]) -> str:
    """Format a mapping as lines of YAML, whose values are JSON."""
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
    texts = {f"{METRICS}/{name}": "".join(f"{time_ms} {value!r} {step}\n" for time_ms, value, step in points)
             for name, points in run.metrics.items()}  # fmt: skip
    texts |= {
        f"{kind}/{name}": text
        for kind, texts_by_name in ((PARAMS, run.params), (TAGS, run.tags))
        for name, text in texts_by_name.items()
    }
    try:
        for name in (ARTIFACTS, METRICS, PARAMS, TAGS):
            (aside / name).mkdir(parents=True)
        for name, text in {META: _format_yaml(content), **texts}.items():
            (aside / name).parent.mkdir(parents=True, exist_ok=True)
            (aside / name).write_text(text, encoding="utf-8")
        for path in run.artifacts:
            shutil.copyfile(path, aside / ARTIFACTS / path.name)
        if final.exists():
            shutil.rmtree(final)
        aside.replace(final)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _make_run(row: Mapping[Any, Any], results: Path) -> StoredRun:
    """Make MLflow's run from a row of ``runs.csv`` and the run's history."""
    record = Path(row["record"])
    lacking = {own_keys.LACKING, own_keys.REASON, *_list_lacking_columns((results / record).with_name("run.yaml"))}
    params, values, tags = _split_row({str(name): value for name, value in row.items() if name not in lacking})
    begin = None if _is_missing(row.get("started_wall_ns")) else round(row["started_wall_ns"] / 1e6)
    end = None if begin is None or _is_missing(row.get("runtime_s")) else begin + round(row["runtime_s"] * 1e3)
    at = end or begin or 0
    metrics = {name: [(at, value, 0)] for name, value in values.items()}
    is_unproven = failed_runs.is_unproven(row)
    metrics |= {} if is_unproven else _read_epochs((results / record).with_name("history.csv"), at)
    name = record.parent.as_posix().removeprefix("runs/")
    tags |= {RUN_NAME: name, OWNER_TAG: record.as_posix(), "mlflow.source.type": "LOCAL"}
    if "git_commit" in tags:
        tags[COMMIT] = tags["git_commit"]
    if "failure_message" in tags:
        tags[NOTE] = tags["failure_message"]
    if is_unproven:
        tags[NOTE] = f"{failed_runs.UNPROVEN}: {row['unproven']}"
    return StoredRun(name, FINISHED if row["status"] == "ok" else FAILED, (begin, end), params, metrics, tags)


def _split_row(row: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, float], dict[str, str]]:
    """Split a row into parameters, metrics and tags, without empty cells."""
    parameter_columns = {each.column for name in PARAMETER_SECTIONS for each in fields.find_section(name).fields}
    tag_columns = {each.column for name in TAG_SECTIONS for each in fields.find_section(name).fields}
    params: dict[str, str] = {}
    metrics: dict[str, float] = {}
    tags: dict[str, str] = {}
    for name, value in row.items():
        if _is_missing(value):
            continue
        if name in PARAMETERS or name in parameter_columns:
            params[name] = str(value)
        elif name in tag_columns or name.endswith(CHECKSUM) or not _is_number(value):
            tags[name] = str(value)
        elif math.isfinite(value):
            metrics[name] = float(value)
    return params, metrics, tags


def _list_lacking_columns(definition: Path) -> set[str]:
    """List the columns of keys that a run does not have, by its ``run.yaml``; none if that cannot be read."""
    try:
        run = RunDefinition.read(definition)
    except StudyError:
        return set()
    return applicability.find_inapplicable_keys(fill_defaults(run.parameters), run.benchmark)


def _is_missing(value: Any) -> bool:
    """True for None, NaN and the empty text."""
    return value is None or value == "" or bool(pd.isna(value))


def _is_number(value: Any) -> bool:
    """True for a number that is no flag."""
    return isinstance(value, int | float | np.number) and not isinstance(value, bool | np.bool_)


def _read_epochs(path: Path, at: int) -> dict[str, list[Point]]:
    """Read the columns of ``history.csv`` as points, at each epoch's end where that is known; none without the file."""
    if not path.is_file() or not path.stat().st_size:
        return {}
    columns = read_columns(path, {}, others=lambda _: NUMBER)
    if "epoch" not in columns:
        return {}
    has_times = {"begin_wall_ns", "time_s"} <= set(columns)
    end_times = columns["begin_wall_ns"] / 1e6 + columns["time_s"] * 1e3 if has_times else None
    metrics: dict[str, list[Point]] = {}
    for name in columns:
        if name == "epoch" or name.endswith(("_ns", CHECKSUM)):
            continue
        for place, value in enumerate(columns[name].tolist()):
            moment = at if end_times is None or not math.isfinite(end_times[place]) else round(end_times[place])
            if math.isfinite(value):
                metrics.setdefault(f"epoch/{name}", []).append((moment, value, int(columns["epoch"][place])))
    return metrics


def _make_findings_run(path: Path, runs: Iterable[StoredRun]) -> StoredRun:
    """Make a run of the study's findings: estimates and ends of intervals are metrics, verdicts are tags."""
    findings = validation.load_valid_json(path, "study_findings")["findings"]
    at = max((finding.times[1] for finding in runs if finding.times[1] is not None), default=0)
    stored = StoredRun("findings", FINISHED, (at, at), artifacts=(path,))
    for finding in findings:
        for part in ("estimate", "low", "high", "blocks"):
            if finding[part] is not None:
                stored.metrics[f"finding/{finding['name']}/{part}"] = [(at, float(finding[part]), 0)]
        stored.tags[f"finding.{finding['name']}"] = finding["verdict"]
    note = "\n".join(f"- {finding['title']}: {finding['sentence']}" for finding in findings)
    stored.tags |= {RUN_NAME: stored.name, OWNER_TAG: path.name, **({NOTE: note} if note else {})}
    return stored

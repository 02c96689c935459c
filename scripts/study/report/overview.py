"""The report's first page: the study, the machine it ran on, what failed, and every run behind the numbers."""

import json
from pathlib import Path
from typing import Any

import pandas as pd

from study.experiment import schemas
from study.experiment.study import Study
from study.report import html
from study.report.tables.layout import text

RUN_COLUMNS = [*schemas.separating(), "epochs_per_rank", "batch_size_per_rank", "repeat", "status", "runtime_s",
               "time_per_epoch_s", "accuracy", "loss", "resumed_after_epoch", "code_is_current", "record"]  # fmt: skip


def overview(
    study: Study, machine: dict[str, Any], runs: pd.DataFrame, loading: pd.DataFrame, folder: str | Path
) -> str:
    """The page as HTML.

    study: the expanded study. machine: the machine's YAML with its name. runs, loading: the tidy tables. folder: the
    machine's results folder, to which their column ``record`` is relative.
    """
    parts = [
        html.paragraph(study.description),
        html.heading("The machine"),
        html.items([f"{machine['name']}: {machine['description']}", *_hosts(runs, loading, Path(folder))]),
        html.heading("What failed"),
        _failed(runs, loading),
        html.heading("The runs"),
        _runs(runs),
        html.heading("The loading measurements"),
        _loading(loading),
        *_profiles(runs, Path(folder)),
    ]
    return html.page(f"Study {study.name} on {machine['name']}", *parts)


def _hosts(runs: pd.DataFrame, loading: pd.DataFrame, folder: Path) -> list[str]:
    """One line per host, from the provenance of its first run, or of the loading measurements."""
    files = [(folder / record).with_name("provenance.json") for record in _column(runs, "record")]
    measured = [folder / record for record in _column(loading, "record")]
    found = [_read(file) for file in files] or [_read(file)["provenance"] for file in dict.fromkeys(measured)]
    others = [_other_host_line(host) for each in found for host in each.get("hosts", [])]
    return list(dict.fromkeys([*(_host_line(each) for each in found), *others]))


def _other_host_line(host: dict[str, Any]) -> str:
    """One of several hosts on which a run had ranks."""
    return (
        f"host {host['name']}: {host['cpu']}, {host['cores_allowed']} of {host['cores']} cores, "
        f"{host['memory_mb'] / 1000:.0f} GB memory"
    )


def _read(file: Path) -> dict[str, Any]:
    return json.loads(file.read_text(encoding="utf-8"))


def _host_line(provenance: dict[str, Any]) -> str:
    host, gpus = provenance["host"], provenance["gpus"]
    names = ", ".join(gpu["name"] for gpu in gpus["found"]) or f"no GPU seen ({gpus['reason']})"
    packages = ", ".join(f"{name} {version}" for name, version in provenance["packages"].items())
    return (
        f"host {host['name']}: {host['cpu']}, {host['cores_allowed']} of {host['cores']} cores, "
        f"{host['memory_mb'] / 1000:.0f} GB memory; {names}; {host['system']}; "
        f"Python {provenance['python']}, {packages}; commit {provenance['git']['commit']}"
        + (" with changes" if provenance["git"]["dirty"] else "")
    )


def _failed(runs: pd.DataFrame, loading: pd.DataFrame) -> str:
    lines = []
    for _, run in (runs[runs["status"] != "ok"] if len(runs) else runs).iterrows():
        expected = "" if pd.isna(run["may_fail"]) else f" This was expected: {run['may_fail']}."
        lines.append(
            f"{run['failure_kind']} in {run['failure_phase']}: {run['failure_message']}.{expected}\n{run['record']}"
        )
    for _, load in (loading[loading["status"] != "ok"] if len(loading) else loading).iterrows():
        lines.append(f"{load['loader']} on {load['benchmark']} {load['file']}: {load['message']}\n{load['record']}")
    return html.items(lines) or html.paragraph("Nothing failed.")


def _runs(runs: pd.DataFrame) -> str:
    if runs.empty:
        return html.paragraph("This study has no runs.")
    names = [name for name in RUN_COLUMNS if name in runs]
    right = [index for index, name in enumerate(names) if pd.api.types.is_numeric_dtype(runs[name])]
    return html.table(runs[names].map(text), right)


def _loading(loading: pd.DataFrame) -> str:
    if loading.empty:
        return html.paragraph("This study has no loading measurements.")
    return html.items(f"{len(group)} loads: {record}" for record, group in loading.groupby("record", sort=False))


def _profiles(runs: pd.DataFrame, folder: Path) -> list[str]:
    """The top of each profiled run's profile, folded; empty if the study has none."""
    profiled = runs[runs["profile"].astype(bool) & (runs["status"] == "ok")] if len(runs) else runs
    parts = [html.heading("The profiles: functions of rank 0 by their own time")] if len(profiled) else []
    for _, run in profiled.iterrows():
        top = pd.DataFrame(_read(folder / run["record"])["profile"]["top"])
        title = f"{run['benchmark']}, {run['scaling']} scaling, {run['gpus']} ranks, {run['loader']}: {run['record']}"
        parts.append(html.folded(title, html.table(top.map(text), right=(1, 2, 3))))
    return parts


def _column(frame: pd.DataFrame, name: str) -> list:
    return frame[name].tolist() if name in frame else []

"""The report's first page: the study, the machine it ran on, what failed, and every run behind the numbers."""

import json
from pathlib import Path

import pandas as pd

from study.report import html
from study.report.tables.layout import text

RUN_COLUMNS = ["benchmark", "dataset", "scaling", "epochs_per_rank", "gpus", "batch_size_per_rank", "batch_scaling",
               "loader", "staging", "input_pipeline", "sharding", "trace", "profile", "repeat", "status", "runtime_s",
               "time_per_epoch_s", "accuracy", "loss", "resumed_after_epoch", "code_is_current", "record"]  # fmt: skip


def overview(study, machine, runs, loading, folder):
    """The page as HTML.

    study: `grid.Study`; machine: the machine's YAML with its name; runs, loading: the tidy tables; folder: the
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


def _hosts(runs, loading, folder):
    """A line for each host, from the provenance of its first run, or of the loading measurements."""
    files = [(folder / record).with_name("provenance.json") for record in _column(runs, "record")]
    measured = [folder / record for record in _column(loading, "record")]
    found = [_read(file) for file in files] or [_read(file)["provenance"] for file in dict.fromkeys(measured)]
    return list(dict.fromkeys(_host_line(each) for each in found))


def _read(file):
    return json.loads(file.read_text(encoding="utf-8"))


def _host_line(provenance):
    host, gpus = provenance["host"], provenance["gpus"]
    names = ", ".join(gpu["name"] for gpu in gpus["found"]) or f"no GPU seen ({gpus['reason']})"
    packages = ", ".join(f"{name} {version}" for name, version in provenance["packages"].items())
    return (
        f"host {host['name']}: {host['cpu']}, {host['cores_allowed']} of {host['cores']} cores, "
        f"{host['memory_mb'] / 1000:.0f} GB memory; {names}; {host['system']}; "
        f"Python {provenance['python']}, {packages}; commit {provenance['git']['commit']}"
        + (" with changes" if provenance["git"]["dirty"] else "")
    )


def _failed(runs, loading):
    lines = []
    for _, run in (runs[runs["status"] != "ok"] if len(runs) else runs).iterrows():
        expected = "" if pd.isna(run["may_fail"]) else f" This was expected: {run['may_fail']}."
        lines.append(
            f"{run['failure_kind']} in {run['failure_phase']}: {run['failure_message']}.{expected}\n{run['record']}"
        )
    for _, load in (loading[loading["status"] != "ok"] if len(loading) else loading).iterrows():
        lines.append(f"{load['loader']} on {load['benchmark']} {load['file']}: {load['message']}\n{load['record']}")
    return html.items(lines) or html.paragraph("Nothing failed.")


def _runs(runs):
    if runs.empty:
        return html.paragraph("This study has no runs.")
    names = [name for name in RUN_COLUMNS if name in runs]
    right = [index for index, name in enumerate(names) if pd.api.types.is_numeric_dtype(runs[name])]
    return html.table(runs[names].map(text), right)


def _loading(loading):
    if loading.empty:
        return html.paragraph("This study has no loading measurements.")
    return html.items(f"{len(group)} loads: {record}" for record, group in loading.groupby("record", sort=False))


def _profiles(runs, folder):
    """The top of each profiled run's profile, folded; nothing where the study has none."""
    profiled = runs[runs["profile"].astype(bool) & (runs["status"] == "ok")] if len(runs) else runs
    parts = [html.heading("The profiles: functions of rank 0 by their own time")] if len(profiled) else []
    for _, run in profiled.iterrows():
        top = pd.DataFrame(_read(folder / run["record"])["profile"]["top"])
        title = f"{run['benchmark']}, {run['scaling']} scaling, {run['gpus']} ranks, {run['loader']}: {run['record']}"
        parts.append(html.folded(title, html.table(top.map(text), right=(1, 2, 3))))
    return parts


def _column(frame, name):
    return frame[name].tolist() if name in frame else []

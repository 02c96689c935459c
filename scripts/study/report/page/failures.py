"""What failed in a study, with the reason."""

import pandas as pd

from study.records.failures import message, run_name

COLUMNS = ["what", "kind", "phase", "message", "expected because", "record"]


def failures(runs: pd.DataFrame, loading: pd.DataFrame) -> pd.DataFrame:
    """One row per failed run and per failed load: `COLUMNS`. runs, loading: the tidy tables."""
    rows = [_run(run) for run in _failed(runs)] + [_load(load) for load in _failed(loading)]
    return pd.DataFrame(rows, columns=COLUMNS)


def _failed(frame: pd.DataFrame) -> list[dict]:
    return frame[frame["status"] != "ok"].to_dict("records") if len(frame) else []


def _run(run: dict) -> dict:
    name = run_name(run["benchmark"], run["scaling"], run["gpus"], run["loader"])
    what = f"{name}, repeat {run['repeat']}"
    return dict(zip(COLUMNS, (what, run["failure_kind"], run["failure_phase"], message(run["failure_message"]),
                              run["may_fail"], run["record"]), strict=True))  # fmt: skip


def _load(load: dict) -> dict:
    what = f"{load['loader']} on {load['benchmark']} {load['file']}"
    return dict(zip(COLUMNS, (what, None, "load", load["message"], None, load["record"]), strict=True))

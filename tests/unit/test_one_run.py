"""performance/one_run.py: rules on the blocks of a study, which differ in nothing."""

import sys

import numpy as np
import pandas as pd
import pytest

from study.core.paths import ROOT

sys.path.insert(0, str(ROOT / "performance"))
import one_run  # noqa: E402


def study(folder, times):
    """Three points, a repeat per row of times (repeats, points)."""
    path = folder / "results" / "studies" / "mine" / "runs.csv"
    path.parent.mkdir(parents=True)
    rows = [
        {"benchmark": "nt3", "status": "ok", "record": f"runs/{repeat}-{point}/record.json", "gpus": 2**point,
         "repeat": repeat + 1, "time_per_epoch_s": times[repeat][point]}
        for repeat in range(len(times)) for point in range(3)
    ]  # fmt: skip
    for row in rows:
        history = folder / "results" / row["record"].replace("record.json", "history.csv")
        history.parent.mkdir(parents=True)
        history.write_text(f"epoch,time_s\n1,9\n2,{2 * row['time_per_epoch_s']}\n")
    pd.DataFrame(rows).to_csv(path, index=False)
    return path


def test_equal_runs_raise_alarms_where_a_rule_takes_one(tmp_path):
    times = np.array([[10, 5, 3.0], [11, 4.6, 3.3], [9.8, 5.1, 2.9]])
    found = one_run.evaluate_study(study(tmp_path, times)).set_index("rule")
    assert found["decisions"].tolist() == [6, 6, 6, 6, 2]
    slower = (times[:-1] / times[1:] < 0.95).mean()
    assert found.loc["one run below 95 % of the baseline", "false_alarms"] == pytest.approx(slower)
    assert found.loc["one epoch of one run below 95 %", "false_alarms"] == pytest.approx(slower)
    assert found.loc["all points of two blocks, interval excludes 1", "false_alarms"] == 0

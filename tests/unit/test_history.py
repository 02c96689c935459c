"""The history of a rank as rows and as a file."""

import math

import numpy as np
import pytest

from study.training import history

ROWS = [
    {"epoch": 1, "loss": np.float32(0.1), "begin_wall_ns": 1795780000123456789, "tcp_sent_bytes": None},
    {"epoch": 2, "loss": float("nan"), "begin_wall_ns": 1795780001123456789, "steps_s": 0.30000000000000004},
    {"epoch": 3, "loss": np.float64("inf"), "begin_wall_ns": 1795780002123456789, "tcp_sent_bytes": 7.5},
]


def test_the_file(tmp_path):
    history.write_history(tmp_path / "history.csv", ROWS)
    assert (tmp_path / "history.csv").read_bytes().decode() == (
        "epoch,loss,begin_wall_ns,tcp_sent_bytes,steps_s\n"
        "1,0.1,1795780000123456789,,\n"
        "2,,1795780001123456789,,0.30000000000000004\n"
        "3,inf,1795780002123456789,7.5,\n"
    )


@pytest.mark.parametrize(
    "column, values, known, has",
    [("epoch", [1, 2, 3], [1, 2, 3], True), ("loss", [pytest.approx(0.1), None, None], [pytest.approx(0.1)], True),
     ("steps_s", [None, pytest.approx(0.3), None], [pytest.approx(0.3)], True), ("accuracy", [None] * 3, [], False)],
)  # fmt: skip
def test_a_column(column, values, known, has):
    assert history.list_values(ROWS, column) == values
    assert history.list_finite_values(ROWS, column) == known
    assert history.has_column(ROWS, column) is has
    assert all(map(math.isfinite, history.list_finite_values(ROWS, column)))

"""Tables and figure of the network laboratory, from runs with known numbers."""

import pandas as pd
import pytest

from study.experiment.parameters import PARAMETERS
from study.report.tables import TABLES

network, allreduce = (TABLES[name].make for name in ("network", "allreduce"))
SIZES = (4096, 8 << 20)
RUN = {
    **{name: parameter.default for name, parameter in PARAMETERS.items() if parameter.has_default},
    "machine": "lab", "memory_mode": "none",
    "benchmark": "nt3", "dataset": "d", "scaling": "weak", "epochs": 3, "gpus": 2, "batch_size": 2,
    "loader": "npy", "epochs_per_rank": 3, "batch_size_per_rank": 2, "train_samples": 40, "features": 60,
    "status": "ok", "failure_kind": None, "may_fail": None, "resumed_after_epoch": None, "power_source": None,
    "power_reason": "none", "oversubscribed": False, "code_is_current": True, "runtime_s": 10.0,
    "time_per_step_s": 0.1, "gradient_mb": 1.0, "tcp_sent_mb_per_step": 1.01, "cpu_busy": 0.5, "cpu_limited": False,
}  # fmt: skip


def runs(*changes):
    rows = [{**RUN, "record": f"runs/{number}/record.json", **change} for number, change in enumerate(changes)]
    return pd.DataFrame(rows).astype({"resumed_after_epoch": float})


FOUND = runs(
    {"link_mbit_per_s": 100, "gpus": 1, "tcp_sent_mb_per_step": 0.0},
    {"link_mbit_per_s": 100, "repeat": 1},
    {"link_mbit_per_s": 100, "repeat": 2, "time_per_step_s": 0.12, "cpu_limited": True},
    {"link_mbit_per_s": 20, "gpus": 4},
    {"link_mbit_per_s": 100, "allreduce_sweep": True, **{f"busbw_{size}_gb_per_s": 0.0125 * 0.9 for size in SIZES}},
    {"gpus": 2},
)


def test_a_step_is_compared_with_the_link():
    table = network(FOUND, None).frame.set_index(["link_mbit_per_s", "gpus"])
    assert len(table) == 3  # without the sweep, and without the run that has no link rate
    row = table.loc[100, 2]
    assert row.ring_mb_per_step == pytest.approx(1.0)  # 2 x 1 / 2 x 1 MB
    assert row.sent_over_ring == pytest.approx(1.01)
    assert row.wire_limit_s == pytest.approx(0.08)  # 1 MB at 12.5 MB/s
    assert row.time_per_step_s == pytest.approx(0.11)
    assert (row.repeats_ok, row.cpu_limited) == (2, True)
    assert table.loc[20, 4].ring_mb_per_step == pytest.approx(1.5)
    assert not table.loc[20, 4].cpu_limited
    assert pd.isna(table.loc[100, 1].sent_over_ring)


def test_members_of_an_ensemble_are_not_compared_with_a_ring():
    table = network(runs({"link_mbit_per_s": 100, "gpus": 2, "ensemble": 2}), None).frame
    assert table[["ring_mb_per_step", "sent_over_ring", "wire_limit_s", "step_over_wire"]].isna().all(axis=None)


def test_bandwidth_is_a_share_of_the_link():
    table = allreduce(FOUND, None).frame
    assert list(table["message_bytes"]) == list(SIZES)
    assert table["share_of_link"].tolist() == pytest.approx([0.9, 0.9])

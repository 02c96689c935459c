"""The tables of strategies and of checkpoint cost, from runs with known numbers."""

import math

import pandas as pd
import pytest

from study.experiment.parameters import PARAMETERS
from study.report.tables import TABLES

strategies = TABLES["strategies"].make
RUN = {
    **{name: parameter.default for name, parameter in PARAMETERS.items() if parameter.has_default},
    "machine": "local", "memory_mode": "none", "session": "1",
    "benchmark": "nt3", "dataset": "d", "scaling": "weak", "epochs": 3, "gpus": 2, "batch_size": 20,
    "loader": "npy", "epochs_per_rank": 3, "batch_size_per_rank": 20, "train_samples": 40, "features": 60,
    "status": "ok", "failure_kind": None, "may_fail": None, "resumed_after_epoch": None, "power_source": None,
    "power_reason": "none", "oversubscribed": True, "code_is_current": True, "runtime_s": 10.0,
    "steady_samples_per_s": 100.0, "time_per_step_s": 0.1, "gradient_mb": 1.0, "tcp_sent_mb_per_step": 1.0,
    "tcp_received_mb_per_step": 1.0, "servers_sent_mb_per_step": None, "busiest_server_share": None,
    "test_loss": 0.5, "workers_lost": None, "checkpoint_s": 0.2, "train_s": 10.0, "time_per_epoch_s": 9.0,
    "time_per_epoch_steady_s": 2.0,
    **{f"checkpoint_{name}": None for name in ("write_s", "file_mb", "state_mb", "restore_s", "restored_loss_error")},
}  # fmt: skip
SLOWER = {"strategy": "ddp", "steady_samples_per_s": 50.0, "workers_lost": 0}
SERVED = {"strategy": "parameter_server", "servers": 2, "learning_rate_scaling": "none", "test_loss": 0.9,
          "servers_sent_mb_per_step": 2.0, "busiest_server_share": 0.99, "workers_lost": 0}  # fmt: skip


def runs(*changes):
    """Blocks of one run per change, the blocks one after the other; losses differ a little between blocks."""
    rows = []
    for block in (1, 2, 3):
        for change in changes:
            number = len(rows)
            row = {**RUN, "record": f"runs/{number}/record.json", "repeat": block, "block": block, **change}
            row |= {"started_wall_ns": number, "test_loss": row["test_loss"] and row["test_loss"] + 0.01 * block}
            rows.append(row)
    return pd.DataFrame(rows).astype({"resumed_after_epoch": float, "workers_lost": float})


def test_strategies_are_compared_with_horovod():
    table = strategies(runs({}, SLOWER, SERVED), None).frame.set_index("strategy")
    assert list(table.index) == ["ddp", "horovod", "parameter_server"]
    assert pd.isna(table.loc["horovod"].throughput_ratio)
    slower, served = table.loc["ddp"], table.loc["parameter_server"]
    assert (slower.throughput_ratio, slower.pairing) == (pytest.approx(0.5), "paired")
    assert slower.throughput_ratio_low == pytest.approx(0.5) == slower.throughput_ratio_high
    assert slower.test_loss_against_horovod == "no difference shown"
    assert served.throughput_ratio == pytest.approx(1), "although its learning rate is not scaled"
    assert served.test_loss_against_horovod == "higher"
    assert (served.busiest_server_share, served.workers_lost) == (pytest.approx(0.99), 0)


def test_servers_are_compared_with_one():
    one = {**SERVED, "servers": 1, "time_per_step_s": 0.3}
    faster = {**SERVED, "server_placement": "min_size", "time_per_step_s": 0.2}
    slow = [{**each, "link_mbit_per_s": 100, "time_per_step_s": 2.0} for each in (one, faster)]
    table = strategies(runs({}, one, faster, *slow), None).frame.set_index(["link_mbit_per_s", "strategy", "servers"])
    two = table.loc[0, "parameter_server", 2]
    assert two.ratio_to_one_server == pytest.approx(1.5) == two.ratio_to_one_server_low
    assert table.loc[100, "parameter_server", 2].ratio_to_one_server == pytest.approx(1)
    assert pd.isna(table.loc[0, "parameter_server", 1].ratio_to_one_server)


def test_one_repeat_gives_no_verdict():
    found = runs({}, SLOWER)
    row = strategies(found[found["block"] == 1], None).frame.set_index("strategy").loc["ddp"]
    assert row.test_loss_against_horovod is None
    assert math.isnan(row.throughput_ratio_low)


def test_checkpoint_cost_has_shares_and_advice():
    """Written each two epochs of 2 s; a write of 0.5 s; a failure every hour gives an interval of 60 s."""
    written = {"checkpoint_epochs": 2, "checkpoint_write_s": 0.5, "checkpoint_file_mb": 10.1,
               "checkpoint_state_mb": 10.0, "checkpoint_restore_s": 0.1,
               "checkpoint_restored_loss_error": 0.0}  # fmt: skip
    (row,) = TABLES["checkpoint_cost"].make(runs({}, written), None).frame.to_dict("records")
    assert row["write_share_of_interval"] == pytest.approx(0.125)
    assert row["held_share_of_training"] == pytest.approx(0.02)
    assert row["advised_interval_failures_1h_s"] == pytest.approx(60)
    assert row["advised_interval_failures_24h_s"] == pytest.approx(60 * math.sqrt(24))
    assert row["checkpoint_state_mb"] == 10

"""What numbers are defined as: a first epoch, which builds the graph, is in no comparison of throughputs."""

import math
import sys
from pathlib import Path

import pandas as pd
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))
import run_files  # noqa: E402
import test_strategies_report as strategies_report  # noqa: E402
from examples import expand  # noqa: E402
from test_han2019 import claim  # noqa: E402
from test_han2019 import runs_of as runs_of  # noqa: E402  (a fixture)

from study.records import tidy
from study.records.tidy import runs_frame  # noqa: E402
from study.report.tables import TABLES  # noqa: E402

FIRST_S = 35.0  # by which the first of two epochs takes longer, in both arms
# Of 1,000 samples in a later epoch of 10 s, and of 10.5 s: 4.8 % less, of which the total shows 1.8 %.
FAST, SLOW = (
    {"throughput_samples_per_s": 2000 / (FIRST_S + 2 * s), "steady_samples_per_s": 1000 / s} for s in (10, 10.5)
)


@pytest.fixture
def make_run(tmp_path):
    return lambda run, **facts: run_files.make_run(tmp_path, run, **facts)


@pytest.mark.case("first-epoch-strategies", source="alpa-projects/alpa #823", right="0.952 of Horovod's throughput")
def test_a_strategy_whose_later_epochs_are_slower():
    runs = strategies_report.runs(FAST, {**strategies_report.SLOWER, **SLOW})
    row = TABLES["strategies"].make(runs, None).frame.set_index("strategy").loc["ddp"]
    assert row.throughput_ratio == pytest.approx(10 / 10.5)


@pytest.mark.case("first-epoch-claims", source="ecmwf/anemoi-core PR #1254", right="-4.8 %")
def test_a_claim_of_formats_one_of_which_is_slower_in_each_later_epoch(runs_of):
    arms = ({"benchmark": "lenet", "loader": name, **{each: [value] * 3 for each, value in rates.items()}}
            for name, rates in (("tfrecord", FAST), ("lmdb", SLOW)))  # fmt: skip
    found = claim(runs_of(*arms), "throughput: LMDB over TFRecord").value
    assert found == pytest.approx(100 * (10 / 10.5 - 1))


@pytest.mark.case("first-epoch-checkpoints", source="our own", right="a tenth of 20 s: two epochs of 10 s")
def test_the_share_of_an_interval_that_a_checkpoint_takes():
    written = {"checkpoint_epochs": 2, "checkpoint_write_s": 2.0, "time_per_epoch_s": (FIRST_S + 20) / 2,
               "time_per_epoch_steady_s": 10.0}  # fmt: skip
    (row,) = TABLES["checkpoint_cost"].make(strategies_report.runs(written), None).frame.to_dict("records")
    assert (row["checkpoint_interval_s"], row["write_share_of_interval"]) == pytest.approx((20, 0.1))


@pytest.mark.case("first-epoch-only", source="our own", right="no throughput: the only epoch builds the graph")
def test_a_run_of_one_epoch_has_no_steady_throughput(tmp_path):
    (run,) = expand(scaling="weak", epochs=1, gpus=1)
    run_files.make_recorded(tmp_path, run, times=[45.0])
    row = runs_frame([run], {"nt3": "c0de"}, tmp_path / "local").iloc[0]
    assert math.isnan(row.steady_samples_per_s) and row.throughput_samples_per_s == pytest.approx(100 / 45)


@pytest.mark.case("emulated-throughput", source="our own", right="samples of all emulated ranks, as in runs.csv")
def test_the_throughput_of_emulated_ranks_is_one_everywhere():
    keys = {"samples_per_rank": 100, "steps_per_epoch": 5, "time_per_step_s": 0.1, "gpus": 1, "emulated_ranks": 4,
            "epochs_per_rank": 2}  # fmt: skip
    assert tidy.compute_steady_throughput(pd.DataFrame([keys])).tolist() == pytest.approx([4 * 100 / 0.5])
    program = {**keys, "steps_per_epoch": None, "time_per_step_s": None, "epoch_steps_s": 0.25}
    rows = [keys, program, {**program, "program_epochs": 1}]
    found = tidy.compute_steady_throughput(pd.DataFrame(rows)).tolist()
    assert found == pytest.approx([800, 1600, math.nan], nan_ok=True), "a program that stopped after its first epoch"

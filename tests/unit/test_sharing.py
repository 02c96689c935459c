"""Table sharing: its two models by hand, and its rows and its rule from runs with known numbers."""

import json
import math

import pandas as pd
import pytest

from study.report.tables import TABLES
from study.report.tables.ensembles import predict_cpu_gain, predict_time_gain, rules

NOTHING = pd.DataFrame()
SAMPLES = 1000  # of the data, each epoch of a run


@pytest.mark.parametrize(
    ("rates", "gain"),
    [
        ((100, 150, 190), 150 / 100),  # preprocessing limits; shared, the members do
        ((100, 300, 190), 190 / 100),  # shared, what arrives limits
        ((200, 150, 190), 1.0),  # members limit either way
        ((200, 150, 90), 90 / 150),  # what arrives is less than what a rank preprocesses by itself
        ((226.1, 342.6, 685.2), 1.515),  # AlexNet on Titan
    ],
)
def test_rates(rates, gain):
    assert predict_time_gain(*rates) == pytest.approx(gain, abs=1e-3)


def test_cpu_time_pays_while_sending_costs_less_than_preprocessing_again():
    """Four members: three times 2 ms of preprocessing are saved, and communication is paid."""
    assert predict_cpu_gain(0.002, 0.001, 0, 4, 1) == pytest.approx(8 / 3)
    assert predict_cpu_gain(0.002, 0.006, 0.005, 4, 1) == pytest.approx(1)
    assert predict_cpu_gain(0.002, 0.007, 0.005, 4, 1) < 1


DUPLICATED = {
    "makespan_s": [10.0, 20.0, 15.0], "ranks_cpu_s": [16.0, 32.0, 24.0], "samples_preprocessed": 4 * SAMPLES,
    "preprocessing_cpu_s": 8.0, "communication_cpu_s": 0.4, "samples_per_rank": SAMPLES,
}  # fmt: skip
SHARED = {
    "input_sharing": "all_shared", "makespan_s": [6.6, 13.4, 10.0],
    "ranks_cpu_s": [11.0, 22.5, 16.4], "samples_preprocessed": SAMPLES, "preprocessing_cpu_s": 2.0,
    "communication_cpu_s": 1.4, "samples_per_rank": SAMPLES,
}  # fmt: skip
PEAK = {"measure": "peak_throughput"}
RATES = (
    {**PEAK, "peak_samples_per_s": [90.0, 110.0]},
    {**PEAK, "input_sharing": "all_shared", "peak_samples_per_s": 190.0},
    {"measure": "compute_throughput", "compute_samples_per_s": 150.0},
)


def made(runs):
    table = TABLES["sharing"].make(runs, NOTHING)
    return table, table.frame.set_index("input_sharing")


def test_predicted_and_measured_gain_by_hand(ensembles):
    table, rows = made(ensembles(DUPLICATED, SHARED, *RATES))
    assert list(rows.index) == ["duplicated", "all_shared"]
    row = rows.loc["all_shared"]
    assert (row.preprocessing_ms_per_sample, row.communication_ms_per_sample) == pytest.approx((2.0, 1.4))
    assert (row.r_p_samples_per_s, row.r_c_samples_per_s, row.peak_samples_per_s) == (100, 150, 190)
    assert row.predicted_time_gain == pytest.approx(1.5)
    # rest: 24 - 8 s of 1,000 samples; duplicated 16 + 8, shared 16 + 2 + 1 (1.4 less the 0.4 of duplicated)
    assert row.predicted_cpu_gain == pytest.approx(24 / 19)
    assert row.time_gain == pytest.approx((10 / 6.6 * 20 / 13.4 * 15 / 10) ** (1 / 3))
    assert 1 < row.time_gain_low < row.time_gain < row.time_gain_high
    assert (row.time_verdict, row.cpu_verdict, row.pairing) == ("gain", "gain", "paired")
    base = rows.loc["duplicated"]
    assert (
        base.communication_ms_per_sample == pytest.approx(0.4) and pd.isna(base.time_gain) and base.time_verdict is None
    )
    (rule,) = [note for note in table.notes if note.startswith("rule")]
    assert rule.startswith("rule, members that compute: sharing shortens training where a rank preprocesses more")
    assert "gain in 1 of 1 point (1.50 times, predicted 1.50); CPU time: gain in 1 of 1 point (1.45 times" in rule


def costs(preprocessed, communication_s=0.0, **other):
    """A run whose CPU time is 3 ms of preprocessing each time, 1 ms of the rest per sample, and communication."""
    run = {"samples_per_rank": SAMPLES, "epochs_per_rank": 1} | other
    rest_s = run["samples_per_rank"] * run["epochs_per_rank"] / 1000
    costs = {"samples_preprocessed": preprocessed, "preprocessing_cpu_s": 3 * preprocessed / 1000,
             "communication_cpu_s": communication_s, "makespan_s": 1.0}  # fmt: skip
    return run | costs | {"ranks_cpu_s": costs["preprocessing_cpu_s"] + communication_s + rest_s}


ON_NODES = {"input_sharing": "shared_memory", "nodes": 2}  # each node preprocesses the data
ALL_SHARED = {"input_sharing": "all_shared"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("duplicated", "shared", "communication_ms", "gain"),
    [
        (costs(4000, nodes=2), costs(2000, **ON_NODES), 0, 13 / 7),
        (costs(4000, nodes=2), costs(2000, 1.0, **ON_NODES), 1, 13 / 8),
        (costs(4000), costs(1000, 1.0, **ALL_SHARED), 1, 13 / (1 + 3 + 1)),
    ],
)
def test_costs_count_how_often_a_sample_is_preprocessed(ensembles, duplicated, shared, communication_ms, gain):
    """Whatever the number of times, the gain of CPU time that is predicted is the one that is measured."""
    _, rows = made(ensembles(duplicated, shared))
    row = rows.loc[shared["input_sharing"]]
    assert (row.preprocessing_ms_per_sample, row.communication_ms_per_sample) == pytest.approx((3, communication_ms))
    assert (row.predicted_cpu_gain, row.cpu_gain) == pytest.approx((gain, gain))


@pytest.mark.parametrize(("nodes", "expected"), [(4, (100, 150)), (1, (math.nan, math.nan))])
@pytest.mark.slow
def test_rates_of_one_member_are_those_of_many_only_on_nodes_of_their_own(ensembles, nodes, expected):
    alone = {"ensemble": 1, "gpus": 1}
    rates = ({**alone, **PEAK, "peak_samples_per_s": 100.0}, {**alone, **RATES[2]})
    _, rows = made(ensembles(DUPLICATED, SHARED, *rates).assign(nodes=nodes))
    found = rows.loc["all_shared"]
    assert (found.r_p_samples_per_s, found.r_c_samples_per_s) == pytest.approx(expected, nan_ok=True)


def test_no_difference_is_shown_where_the_interval_has_1(ensembles):
    alike = {**SHARED, "makespan_s": [10.2, 19.7, 15.1], "ranks_cpu_s": [17.6, 35.1, 26.5]}
    table, rows = made(ensembles(DUPLICATED, alike, *RATES))
    assert (rows.loc["all_shared"].time_verdict, rows.loc["all_shared"].cpu_verdict) == ("no difference shown", "loss")
    (rule,) = [note for note in table.notes if note.startswith("rule")]
    assert "no difference shown in 1 of 1 point;" in rule and "loss in 1 of 1" in rule
    wheres = {
        100: "member computes (r_p < r_c)",
        150: "as fast or faster",
        200: "as fast or faster",
        math.nan: "measured",
    }
    for r_p, where in wheres.items():  # r_c is 150
        assert f"{where}: no difference shown in 1 of 1 point" in rules(table.frame.assign(r_p_samples_per_s=r_p))[0]


def test_two_blocks_have_an_interval_and_no_verdict(ensembles):
    points = ({**each, "makespan_s": [times, 2 * times], "ranks_cpu_s": [16.0, 16.0]}
              for each, times in ((DUPLICATED, 10.0), (SHARED, 6.0)))  # fmt: skip
    _, rows = made(ensembles(*points))
    row = rows.loc["all_shared"]
    assert (row.time_gain_low, row.time_gain_high, row.time_verdict) == (*[pytest.approx(10 / 6)] * 2, None)


@pytest.mark.slow
def test_simulated_accelerators_have_rows_and_a_rule_of_their_own(ensembles):
    simulated = {"compute": "simulated", "simulated_samples_per_s": 300.0}
    points = [DUPLICATED, SHARED, DUPLICATED | simulated, SHARED | simulated | {"makespan_s": [5.2, 10.6, 8.0]}]
    table, _ = made(ensembles(*points, *RATES))
    rows = table.frame.set_index(["compute", "input_sharing"])
    assert rows.loc[("measured", "all_shared"), "predicted_time_gain"] == pytest.approx(1.5)
    assert rows.loc[("simulated", "all_shared"), "predicted_time_gain"] == pytest.approx(1.9)
    assert rows.loc[("simulated", "all_shared"), "r_c_samples_per_s"] == 300
    assert [note.split(":")[0] for note in table.notes if note.startswith("rule")] == [
        "rule, members that compute", "rule, a simulated accelerator",
    ]  # fmt: skip
    assert "simulated" in table.markdown()


@pytest.mark.parametrize(("own", "rate", "gain"), [([None] * 4, 40, 2.0), ([None, 8.0, None, 50.0], 8, 1.0)])
def test_the_slowest_simulated_accelerator_decides(ensembles, own, rate, gain):
    members = json.dumps([{"simulated_samples_per_s": each} if each else {} for each in own])
    simulated = {"compute": "simulated", "simulated_samples_per_s": 40.0, "members": members}
    rates = ({**PEAK, "peak_samples_per_s": 20.0}, {**PEAK, **RATES[1], "peak_samples_per_s": 60.0})
    _, rows = made(ensembles(DUPLICATED | simulated, SHARED | simulated, *rates))
    row = rows.loc["all_shared"]
    assert (row.r_p_samples_per_s, row.r_c_samples_per_s, row.peak_samples_per_s) == (20, rate, 60)
    assert row.predicted_time_gain == gain


@pytest.mark.slow
def test_a_run_that_failed_is_in_no_gain(ensembles):
    runs = ensembles(DUPLICATED, SHARED, *RATES)
    runs.loc[3, "status"] = "failed"
    _, rows = made(runs)
    assert rows.loc["all_shared"].repeats_ok == 2
    assert rows.loc["all_shared"].time_gain == pytest.approx((20 / 13.4 * 15 / 10) ** 0.5)


def test_a_way_is_compared_with_the_duplicated_pipelines_of_the_same_blocks(ensembles):
    longer = {"prefetch_blocks": 16, "makespan_s": [20.0, 40.0, 30.0]}
    shared = {**SHARED, "prefetch_blocks": 16}
    _, rows = made(ensembles(DUPLICATED, DUPLICATED | longer, shared))
    assert rows.loc["all_shared"].time_gain == pytest.approx(2 * (10 / 6.6 * 20 / 13.4 * 15 / 10) ** (1 / 3))

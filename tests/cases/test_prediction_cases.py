"""Scaling that people measured and reported, and what is recommended from it."""

import math

import numpy as np
import pandas as pd
import pytest
from test_prediction import RUN

from study.contrib.readers.series_tables import build_series
from study.prediction import goals, settings
from study.prediction.answers import answer_workloads
from study.prediction.goals import Goal
from study.prediction.series_answer import answer
from study.report.tables.prediction import recommendation_table

EPOCHS = 128
IMAGES = 50_000


def runs_of(epochs_s, rest_s=15.0, **changes):
    """Two repeats per rank count under strong scaling. epochs_s: {ranks: seconds of an epoch of one rank}."""
    rows = []
    for ranks, seconds in epochs_s.items():
        for repeat in (1, 2):
            epoch, epochs = seconds * (1 + 0.002 * (repeat - 1.5)), EPOCHS // ranks
            rows.append({
                **RUN, "epochs": EPOCHS, "batch_size": 64, "batch_size_per_rank": 64, "gpus": ranks, "repeat": repeat,
                "train_samples": IMAGES, "samples_per_rank": IMAGES, "nodes": 1, "gradient_mb": 102.0,
                "learning_rate_used": float(np.float32(0.001 * ranks)), "epochs_per_rank": epochs,
                "time_per_epoch_s": epoch, "load_s": rest_s / 3, "runtime_s": epochs * epoch + rest_s,
                "record": f"runs/{ranks}-{repeat}/record.json", "oversubscribed": False, **changes,
            })  # fmt: skip
    return pd.DataFrame(rows)


def failed(ranks, repeats):
    one = runs_of({ranks: 1.0}).iloc[0].to_dict()
    return pd.DataFrame([
        {**one, "repeat": repeat, "status": "failed", "failure_kind": "oom", "runtime_s": 50.0} for repeat in repeats
    ])  # fmt: skip


def by_throughput(images_per_s):
    return {ranks: IMAGES * ranks / rate for ranks, rate in images_per_s.items()}


def by_runtime(seconds):
    return {ranks: time * ranks / EPOCHS for ranks, time in seconds.items()}


def recommended(frame, ranks_per_node, goal="fastest"):
    """(table, rank count or None)."""
    frame = frame.assign(nodes=-(-frame["gpus"] // ranks_per_node))
    chosen = settings.select_runs(frame)
    found = answer_workloads(chosen.used, {}, {"nodes": 128, "ranks_per_node": ranks_per_node}, chosen.failed)
    table = recommendation_table(list(found), goals.load(goal) if isinstance(goal, str) else goal)
    rows = table.frame[table.frame["recommended"]] if "recommended" in table.frame else table.frame.iloc[:0]
    return table, (int(rows["ranks"].iloc[0]) if len(rows) else None)


def predicted(table, ranks):
    row = table.frame.set_index("ranks").loc[ranks]
    return row["predicted_runtime_s_low"], row["predicted_runtime_s_high"]


@pytest.mark.case("four-fast-eight-slow", source="horovod/horovod #221", right="4 ranks, or nothing")
def test_eight_measured_ranks_that_were_slower_than_four_are_not_recommended():
    frame = runs_of({1: 40.0, 2: 40.0, 4: 40.0, 8: 480.0}, gradient_mb=20.0)
    table, pick = recommended(frame, 4)
    assert pick == 4
    assert "the model does not fit what was measured: 7695 s on 8 ranks" in " ".join(table.notes)


@pytest.mark.case("superlinear", source="SciML/SciMLBenchmarks.jl #1641", right="4 ranks, the largest measured count")
def test_a_speedup_that_no_mechanism_explains_is_not_extrapolated():
    table, pick = recommended(runs_of(by_runtime({1: 3500.0, 2: 3500 / 9, 4: 100.0}), 1.0), 32)
    assert pick == 4
    assert "Doubted: 4, as 34.7 times as fast as 1 rank is more than 4 times the ranks" in " ".join(table.notes)


@pytest.mark.case("two-nodes-slower", source="horovod/horovod #2581", right="8 ranks, those of one node")
def test_a_second_node_that_makes_it_slower_is_not_recommended():
    images_per_s = {1: 191.5, 2: 383.0, 4: 766.0, 8: 1531.9, 16: 546.9}
    frame = runs_of(by_throughput(images_per_s), gradient_mb=553.4, batch_size=32, batch_size_per_rank=32)
    _, pick = recommended(frame, 8)
    assert pick == 8


@pytest.mark.case("strong-scaling-amrex", source="AMReX-Codes/amrex #689", right="16 and 32 ranks within 90 %")
def test_held_out_counts_of_strong_scaling_are_within_the_interval():
    """All ranks share the work of a step: `study predict --work fixed`."""
    seconds = pd.DataFrame({"ranks": [1, 2, 4, 8], "runtime_s": [479.85, 242.37, 136.32, 73.74]})
    (series,) = build_series(seconds, "amrex", "fixed")
    table = answer(series, [16, 32], goals.load("fastest")).predictions.set_index("ranks")
    held_out = {16: 51.15, 32: 32.32}
    assert all(table["low"][ranks] <= seconds <= table["high"][ranks] for ranks, seconds in held_out.items())


@pytest.mark.case("faster-rcnn", source="tensorpack/tensorpack #1254", right="32 ranks within 90 %")
def test_a_held_out_throughput_is_within_the_interval():
    table, _ = recommended(runs_of(by_throughput({1: 5, 8: 25, 16: 41})), 8)
    low, high = predicted(table, 32)
    measured = EPOCHS / 32 * IMAGES * 32 / 80 + 15
    assert low <= measured <= high


@pytest.mark.case("two-counts", source="AMReX-Codes/amrex #689", right="a prediction with its wide interval")
def test_two_counts_are_predicted_with_their_wide_interval():
    table, _ = recommended(runs_of(by_runtime({1: 479.85, 2: 242.37}), 1.0), 32)
    low, high = predicted(table, 8)
    assert low <= 73.74 <= high and high > 1.25 * low


@pytest.mark.case("one-count", source="our own", right="no prediction")
def test_one_count_is_not_extrapolated():
    table, pick = recommended(runs_of(by_runtime({2: 242.37}), 1.0), 32)
    assert pick is None
    assert "no prediction" in table.notes[0]


GOOD = {1: 10.0, 2: 10.1, 8: 10.3, 16: 10.4}


@pytest.mark.case("failing-count", source="macanderson/stella #6025", right="16 ranks; 32 ranks failed in 3 of 3 runs")
@pytest.mark.parametrize("survivors", [0, 1])
def test_a_count_at_which_runs_fail_is_not_recommended(survivors):
    survived = runs_of({32: 10.5}).iloc[:survivors]
    frame = pd.concat([runs_of(GOOD), survived, failed(32, range(2, 5 if not survivors else 11))], ignore_index=True)
    table, pick = recommended(frame, 8)
    assert pick == 16
    assert "on 32 ranks failed (oom" in table.notes[0]
    assert not any("next, measure on 32" in note for note in table.notes)


@pytest.mark.case("most-runs-of-the-cheapest-fail", source="our own", right="not 1 rank, whose runs time out")
def test_the_cheapest_count_is_not_recommended_if_it_times_out():
    """One rank uses the fewest node-hours, but two of three runs reached their time limit."""
    bad = failed(1, (3, 4, 5)).assign(failure_kind="timeout")
    frame = pd.concat([runs_of(GOOD), bad], ignore_index=True)
    table, pick = recommended(frame, 1, goal=Goal("g", "", "node_hours"))
    assert pick == 2
    assert "failed (timeout 3)" in table.notes[0]


@pytest.mark.case("faster-than-the-fit", source="our own", right="the measured winner, 8 ranks")
def test_a_measured_winner_is_recommended_though_the_model_smooths_it_away():
    """Four ranks and 16 are slow in every repeat: the fit goes through the middle, the measurements decide."""
    frame = runs_of({1: 10.0, 2: 10.0, 4: 20.0, 8: 10.0, 16: 40.0})
    _, pick = recommended(frame, 4)
    assert pick == 8


@pytest.mark.case("energy-doubt", source="our own", right="a measured count, as the model does not fit the energy")
def test_an_energy_that_jumps_is_not_extrapolated():
    """From 8 ranks on the meter shows eight times the power; goal: least energy."""
    frame = runs_of({1: 10.0, 2: 10.1, 4: 10.2, 8: 10.3, 16: 10.4})
    power = np.where(frame["gpus"] < 8, 250.0, 2000.0)
    frame = frame.assign(power_source="measured", energy_job_j=frame["gpus"] * power * frame["runtime_s"])
    table, pick = recommended(frame, 4, goal="least_energy")
    assert pick in (1, 2, 4)
    assert not math.isnan(table.frame["predicted_energy_job_j"].iloc[0])


@pytest.mark.case("counts-of-two-versions", source="airspeed-velocity/asv #509", right="one version is fitted, said")
def test_counts_of_an_older_version_are_not_taken_for_an_effect_of_the_ranks():
    """The newer code is twice as fast; up to 4 ranks were measured with the older one, from 8 ranks on with it."""
    old = runs_of({1: 20.0, 2: 20.0, 4: 20.0}, training_code="old", started_wall_ns=1)
    new = runs_of({8: 10.0, 16: 10.0, 32: 10.0}, training_code="new", started_wall_ns=2)
    chosen = settings.select_runs(pd.concat([old, new], ignore_index=True))
    assert set(chosen.used["training_code"]) == {"new"}
    assert chosen.left_out == {"unlike the runs that are used (several versions of the code)": 6}
    few = settings.select_runs(pd.concat([old, new[new["gpus"] == 8]], ignore_index=True))
    assert set(few.used["training_code"]) == {"old"}, "one count of the newer version is too few"


@pytest.mark.case("count-that-misses-the-target", source="our own", right="4 ranks; 8 ranks miss it in 2 of 2 runs")
def test_a_count_that_misses_the_target_is_not_recommended():
    """The learning rate grows with the ranks; from 8 ranks on training no longer reaches the target quality."""
    frame = runs_of({1: 10.0, 2: 10.1, 4: 10.2, 8: 10.3})
    table, pick = recommended(frame.assign(target_reached=frame["gpus"] < 8), 8)
    assert pick == 4
    assert "2 of 2 runs on 8 ranks failed (missed the target 2)" in table.notes[0]
    assert recommended(frame, 8)[1] > 4
    assert recommended(frame.assign(target_reached=False), 8)[1] > 4, "a target that no count reaches tells none apart"


@pytest.mark.case("misfits-by-chance", source="our own", right="at most 10 % of workloads")
def test_noise_alone_is_seldom_taken_for_a_misfit():
    rng, wrong, workloads = np.random.default_rng(17), 0, 20
    for _ in range(workloads):
        frame = runs_of({1: 10.0, 2: 10.1, 4: 10.2})
        frame["time_per_epoch_s"] *= np.exp(rng.normal(0, 0.05, len(frame)))
        frame["runtime_s"] = frame["epochs_per_rank"] * frame["time_per_epoch_s"] + 15
        (answer,) = answer_workloads(settings.select_runs(frame).used, {}, {"nodes": 128, "ranks_per_node": 4})
        wrong += bool(answer.misfits)
    assert wrong <= 2

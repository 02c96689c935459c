"""Runs that are not alike: they are not averaged or compared, and what a reader needs to know of them is told."""

import math

import numpy as np
import pandas as pd
import pytest
from examples import expand

from study.records.power import power_columns
from study.records.record import make_record
from study.records.tidy import runs_frame
from study.report.figures import energy_time_drawing
from study.report.figures.description import load_description
from study.report.machine_comparison import compare_machines
from study.report.tables.kinds import TABLES

MODELLED = {"power_source": "modelled"}


@pytest.fixture
def rows(make_recorded, tmp_path):
    """The tidy table of experiments: ``rows({column: value, or values by block}, ...)``, blocks one after the other."""
    (run,) = expand(scaling="strong", gpus=2)
    make_recorded(run)
    first = {**runs_frame([run], {"nt3": "c0de"}, tmp_path / "local").iloc[0].to_dict(), "power_source": "measured"}

    def build(*experiments):
        found = []
        for experiment in experiments:
            blocks = max((len(value) for value in experiment.values() if isinstance(value, list)), default=3)
            for place in range(blocks):
                at = {name: value[place] if isinstance(value, list) else value for name, value in experiment.items()}
                when = {"block": place + 1, "repeat": place + 1, "started_wall_ns": 1000 * place + len(found)}
                found.append({**first, **when, "record": f"{len(found)}/record.json", **at})
        return pd.DataFrame(found)

    return build


def made(name, runs):
    return TABLES[name].make(runs, pd.DataFrame(columns=["loader"]))


def claim(name, runs, quantity):
    frame = made(name, runs).frame
    return frame[frame["quantity"].str.startswith(quantity)].iloc[0]


ENERGIES = {
    name: [100.0, 101.0, 99.0] for name in ("energy_per_gpu_j", "whole_run_energy_per_gpu_one_hz_j", "energy_job_j")
}
HALVES = {name: [50.0, 50.5, 49.5] for name in ENERGIES}


@pytest.mark.slow
def test_measured_power_is_not_compared_with_modelled_power(rows):
    runs = rows({"loader": "read_csv", **ENERGIES}, {"loader": "chunked", **HALVES, **MODELLED})
    table = made("icpp2019_table5", runs)
    assert table.frame["energy_change_pct"].isna().all()
    assert any("modelled from CPU utilisation" in note for note in table.notes)
    reduction = claim("icpp2019_claims", runs, "energy_reduction")
    assert math.isnan(reduction["value"]) and math.isnan(reduction["highest"])
    sizes = rows({"batch_size": 20, **ENERGIES}, {"batch_size": 40, **HALVES, **MODELLED})
    optimum = made("batch_size_optimum", sizes).frame
    assert optimum["energy_verdict"].isna().all()
    same = made("batch_size_optimum", sizes.assign(power_source="measured")).frame
    assert same["energy_verdict"].tolist() == ["higher", "lowest"]


@pytest.mark.slow
def test_a_batch_size_is_best_in_the_blocks_that_both_have(rows):
    """A fourth repeat of the faster one was slow; its mean is higher, but it is faster in every block."""
    runs = rows({"batch_size": 20, "runtime_s": [100.0, 101.0, 99.0, 200.0]},
                {"batch_size": 40, "runtime_s": [110.0, 111.5, 108.5]})  # fmt: skip
    table = made("batch_size_optimum", runs)
    found = table.frame.set_index("batch_size")
    assert found["runtime_verdict"].to_dict() == {20: "lowest", 40: "higher"}
    logarithms = np.log([110 / 100, 111.5 / 101, 108.5 / 99])
    half = 4.3027 * logarithms.std(ddof=1) / math.sqrt(3)  # t(0.975, 2): of two sizes that is all pairs' quantile
    ends = [logarithms.mean() + each for each in (-half, 0, half)]
    columns = [f"runtime_to_lowest{end}" for end in ("_low", "", "_high")]
    assert found.loc[40, columns].astype(float).tolist() == pytest.approx(np.exp(ends), rel=1e-5)


@pytest.mark.slow
def test_batch_sizes_that_are_lower_in_a_circle_cannot_be_told_apart(rows):
    """Each two have other blocks in common."""
    blocks = ({"batch_size": 20, "block": [1, 2, 5, 6], "runtime_s": [100.0, 101.0, 150.0, 151.0]},
              {"batch_size": 40, "block": [1, 2, 3, 4], "runtime_s": [110.0, 111.2, 100.0, 101.0]},
              {"batch_size": 80, "block": [3, 4, 5, 6], "runtime_s": [110.0, 111.2, 130.0, 131.5]})  # fmt: skip
    runs = rows(*blocks).assign(started_wall_ns=lambda frame: 1000 * frame["block"] + frame.index)
    found = made("batch_size_optimum", runs).frame.set_index("batch_size")
    assert found["runtime_to_lowest"].to_dict() == pytest.approx({20: 0.909, 40: 1.0, 80: 1.1}, rel=1e-2)
    assert found.loc[40, "runtime_verdict"] == "not told apart"


NETWORK = {"gpus": 1, "batch_size": 128, "batch_size_per_rank": 128, "strategy": "horovod"}
SMALL, LARGE = {"dataset": "small", "train_samples": 1000}, {"dataset": "large", "train_samples": 9000}


@pytest.mark.slow
def test_networks_are_compared_on_the_same_images(rows):
    """ResNet-101 is 10 % slower on both datasets, and fails on one."""
    fifty = ({**NETWORK, "benchmark": "resnet50", **SMALL, "steady_samples_per_s": 1000.0},
             {**NETWORK, "benchmark": "resnet50", **LARGE, "steady_samples_per_s": 200.0})  # fmt: skip
    small, large = ({**NETWORK, "benchmark": "resnet101", **SMALL, "steady_samples_per_s": 900.0},
                    {**NETWORK, "benchmark": "resnet101", **LARGE, "steady_samples_per_s": 180.0})  # fmt: skip
    failed = {**small, "status": "failed", "failure_kind": "oom"}
    found = claim("han2019_claims", rows(*fifty, failed, large), "ResNet-101 slower")
    assert found["value"] == pytest.approx(10)
    found = claim("han2019_claims", rows(*fifty, small, large), "ResNet-101 slower")
    assert (found["value"], found["series"]) == (pytest.approx(10), 2)


def test_the_pareto_front_of_energy_and_time_is_of_the_same_work(rows):
    """200 beats 300 in both; 100 needs the least energy. Modelled energies are compared among themselves only."""
    points = {20: (10.0, 900.0), 300: (11.0, 950.0), 200: (10.5, 700.0), 100: (14.0, 650.0)}
    runs = rows(
        *({"batch_size": size, "energy_window_s": seconds, "energy_job_j": [joules - 1, joules, joules + 1]}
          for size, (seconds, joules) in points.items()),
        {"energy_window_s": 1.0, "energy_job_j": [1.0, 1.0, 1.0], "batch_size": 40, **MODELLED},
        {"energy_window_s": 2.0, "energy_job_j": [math.nan] * 3, "batch_size": 60},
    )  # fmt: skip
    frame = made("energy_time", runs).frame
    measured = frame[frame["power_source"].eq("measured") & frame["energy_job_j"].notna()]
    assert dict(zip(measured["batch_size"], measured["on_pareto_front"], strict=True)) == {
        20: True, 200: True, 300: False, 100: True
    }  # fmt: skip
    assert frame.loc[frame["energy_job_j"].isna(), "on_pareto_front"].isna().all()
    data = energy_time_drawing.select(load_description("energy_time"), runs, "test")
    assert [title for title, _ in data.panels] == ["NT3, strong scaling, modelled energy", "NT3, strong scaling"]
    axes = energy_time_drawing.draw(data).axes[1]
    listed = [
        "1  batch size 20 samples",
        "2  batch size 200 samples",
        "3  batch size 300 samples",
        "4  batch size 100 samples",
    ]
    assert axes.get_xlabel().splitlines()[2:] == listed
    assert [text.get_text() for text in axes.texts] == ["3", "1", "2", "4"], "those that are beaten, then the front"


@pytest.mark.slow
def test_claims_and_comparisons_of_oversubscribed_runs_say_so(rows):
    crowded = rows({"loader": "read_csv", "runtime_s": 100.0},
                   {"loader": "chunked", "runtime_s": 150.0, "oversubscribed": True})  # fmt: skip
    assert any("oversubscribed" in note for note in made("icpp2019_claims", crowded).notes)
    networks = rows({**NETWORK, "benchmark": "resnet50", "steady_samples_per_s": 200.0},
                    {**NETWORK, "benchmark": "resnet101", "steady_samples_per_s": 180.0,
                     "oversubscribed": True})  # fmt: skip
    assert any("oversubscribed" in note for note in made("han2019_claims", networks).notes)
    machines = rows({"machine": "a"}, {"machine": "b", "oversubscribed": True, "code_is_current": False})
    assert len(compare_machines(machines, "a").notes) == 2


def test_a_comparison_has_no_time_per_step_of_an_epoch_that_builds_the_graph(rows):
    for epochs, has_step in ((1, False), (2, True)):
        step = {"epochs_per_rank": epochs, "time_per_step_s": 0.1, "runtime_s": 10.0}
        found = set(compare_machines(rows({"machine": "a", **step}, {"machine": "b", **step}), "a").frame["quantity"])
        assert ("runtime_s" in found, "time_per_step_s" in found) == (True, has_step)


def test_shares_of_energy_are_of_runs_that_have_both(rows):
    runs = rows({"energy_job_j": [100.0, 1000.0], "load_energy_j": [20.0, math.nan], "train_energy_j": [50.0, 500.0]})
    (found,) = made("energy_by_phase", runs).frame.to_dict("records")
    assert (found["load_share"], found["train_share"]) == pytest.approx((0.2, 0.5))
    mixed = runs.assign(power_source=["measured", "modelled"])
    assert made("energy_by_phase", mixed).frame[["load_share", "train_share"]].isna().all(axis=None)
    nothing = runs.assign(energy_job_j=[0.0, 1000.0])
    assert made("energy_by_phase", nothing).frame["train_share"].item() == 0.5


@pytest.mark.slow
def test_resumed_runs_that_miss_the_target_leave_no_olympic_mean(rows):
    target = {"quality_target": "x", "training_to_target_s": math.nan, "load_to_target_j": math.nan,
              "epochs_to_target": 1}  # fmt: skip
    reached = {**target, "target_reached": True, "launch_to_target_s": [10.0, 11.0, 12.0, 13.0, 14.0]}
    missed = {**target, "target_reached": False, "launch_to_target_s": [math.nan] * 2, "resumed_after_epoch": 2.0}
    assert made("time_to_quality", rows(reached)).frame["launch_to_target_olympic_s"].item() == 12
    assert np.isnan(made("time_to_quality", rows(reached, missed)).frame["launch_to_target_olympic_s"].item())


def test_a_run_of_other_steps_is_not_beside_the_paper_s_time(ensembles):
    """One epoch of all images with batches of 128 is 10,157 steps; the paper's time is of 2,000."""
    images = {"benchmark": "alexnet", "dataset": "imagenet", "train_samples": 1_300_000, "batch_size_per_rank": 128,
              "batch_size": 128, "epochs_per_rank": 1}  # fmt: skip
    alone = {"ensemble": 1, "members": "[{}]", "gpus": 1}
    runs = ensembles({**images, **alone, "train_s": [5700.0, 5710.0, 5690.0]})
    found = made("pittman2018_table1", runs).frame.iloc[0]
    assert np.isnan(found["ratio_mean_s"])
    assert found["ratio_reason"] == "10,157 steps instead of 2,000"
    failed = runs.assign(status="failed", failure_kind="oom", train_samples=None)
    assert made("pittman2018_table1", failed).frame.iloc[0]["ratio_reason"] == "no repeat succeeded"


def test_samples_per_joule_count_all_ranks(make_run):
    """Four of four epochs each."""
    (run,) = expand(scaling="weak", epochs=4, gpus=4)
    folder = make_run(run)
    record = make_record(folder)
    record["workload"]["samples_per_rank"], record["power"]["energy_job_j"] = 1000, 1000.0
    assert power_columns(record)["samples_per_j"] == 16
    record["power"]["whole_run"] = {"window_s": 20.0, "energy_per_gpu_one_hz_j": 1600.0, "reason": "a test"}
    assert power_columns(record)["whole_run_power_per_gpu_one_hz_w"] == 80


@pytest.mark.parametrize(
    ("scaling", "sharding", "front"),
    [("weak", "none", [True, True]), ("strong", "by_rank", [True, True]),
     ("strong", "none", [True, False]), ("weak", "by_rank", [True, False])],
)  # fmt: skip
def test_ranks_that_do_more_work_are_not_beaten_by_fewer(rows, scaling, sharding, front):
    """Two ranks take longer and twice the energy: for the same work they are beaten, for another they are not."""
    same = {"scaling": scaling, "sharding": sharding}
    runs = rows({**same, "gpus": 1, "energy_window_s": 10.0, "energy_job_j": [100.0] * 3},
                {**same, "gpus": 2, "energy_window_s": 11.0, "energy_job_j": [200.0] * 3})  # fmt: skip
    assert made("energy_time", runs).frame["on_pareto_front"].tolist() == front
    titles = [title for title, _ in energy_time_drawing.select(load_description("energy_time"), runs, "test").panels]
    ranks = [", 1 rank", ", 2 ranks"] if all(front) else [""]
    assert titles == [f"NT3, {scaling} scaling{each}" for each in ranks]

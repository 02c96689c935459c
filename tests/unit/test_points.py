"""Predictions from anybody's points: the contract of `study predict`, and what every series must obey."""

import re
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from examples import expand
from hypothesis import given, settings
from hypothesis import strategies as st
from test_prediction import computed, runs, with_energy

from study.contrib.readers.series_files import read_series_files
from study.contrib.readers.series_tables import build_series
from study.core.errors import StudyError
from study.core.paths import ROOT
from study.prediction import goals
from study.prediction.recommend import recommend
from study.prediction.scaling_model import fit_scaling
from study.prediction.series_answer import _Job, answer
from study.records.tidy import runs_frame
from study.report.series_text import to_markdown
from study.report.tables.allocation import allocation_table

COUNTS = np.array([1.0, 2.0, 4.0, 8.0])
BEYOND = np.array([16.0, 64.0])


def made(times, ranks=(1, 2, 4, 8), work="fixed", column="runtime_s", **columns):
    (series,) = build_series(pd.DataFrame({"ranks": ranks, column: times, **columns}), "x.csv", work, 4)
    return series


def answered(series, asked=(16, 32), goal="fastest"):
    return answer(series, asked, goals.load(goal))


def test_a_serial_part_is_found():
    """Amdahl's law: a tenth of the work is not divided. The interval must hold on 4 times as many ranks."""
    ranks = np.array([1.0, 2, 4, 8, 16])
    times = 10 + 90 / np.array([1.0, 2, 4, 8, 16, 64])
    low, median, high = fit_scaling(ranks, times[:-1], True).predict_interval(np.array([64.0]))
    assert low[0] <= times[-1] <= high[0]
    assert median[0] == pytest.approx(times[-1], rel=0.3)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.floats(0.5, 2), min_size=4, max_size=4),
    st.floats(1e-6, 1e6),
    st.permutations(range(4)),
    st.sampled_from(["fixed", "per_rank"]),
)
def test_units_and_the_order_of_rows_change_nothing(factors, unit, order, work):
    times = np.array(factors) / (COUNTS if work == "fixed" else 1)
    table = pd.DataFrame({"ranks": COUNTS.astype(int), "runtime_s": times})
    (one,) = build_series(table, "x", work, 4)
    (other,) = build_series(table.assign(runtime_s=unit * times).iloc[list(order)], "x", work, 4)
    for first, second in zip(
        one.fit_model().predict_interval(BEYOND), other.fit_model().predict_interval(BEYOND), strict=True
    ):
        assert second == pytest.approx(unit * first, rel=1e-6)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(st.lists(st.floats(0.5, 2), min_size=4, max_size=4), st.integers(1, 5))
def test_certainty_does_not_come_from_rows_or_counts_without_data(factors, copies):
    """Copies of rows, and further counts to predict, are no data."""
    times = np.array(factors) / COUNTS
    rows = pd.DataFrame({"ranks": COUNTS.astype(int), "runtime_s": times})
    (one,), (many,) = (build_series(each, "x", "fixed", 4) for each in (rows, pd.concat([rows] * copies)))
    low, _, high = one.fit_model().predict_interval(BEYOND)
    for model, counts in ((many.fit_model(), BEYOND), (one.fit_model(), np.append(BEYOND, [128.0, 4096.0]))):
        again = model.predict_interval(counts)
        assert (again[2] / again[0])[:2] == pytest.approx(high / low, rel=1e-6)
    width = one.fit_model().predict_interval(np.array([8.0, 16, 32, 64, 128]))
    assert (np.diff(np.log(width[2] / width[0])) > -1e-9).all(), "farther is not more certain"


@pytest.mark.parametrize(
    ("times", "told"),
    [
        ([8, 4, 2, 1], "perfect scaling from 1 to 8 ranks"),
        ([8, 3, 1, 0.4], "superlinear"),
        ([8, 5, 4, 3.9], "saturated"),
        ([8, 4, 2, 6], "takes longer on 8 ranks than on 4"),
        ([8, 2.5, 2.6, 1], "the points are noisy"),
    ],
)
@pytest.mark.parametrize("work", ["fixed", "per_rank"])
def test_each_kind_of_scaling_is_told(times, told, work):
    factor = 1 if work == "fixed" else COUNTS
    assert told in " ".join(answered(made(times * np.array(factor), work=work)).sentences)
    three = answered(made([8, 4.2, 4.0] * np.array([1, 2, 4] if work == "per_rank" else 1), (1, 2, 4), work=work))
    assert "saturated: from 2 to 4 ranks the same work gains 5%" in three.sentences


@pytest.mark.parametrize(
    ("times", "work", "column", "told"),
    [
        ([80, 41, 23, 14], "per_rank", "runtime_s", "is --work per_rank meant?"),
        ([80, 41, 23, 14], "epochs", "time_per_epoch_s", "is --work epochs meant?"),
        ([8, 8.2, 8.3, 8.4], "fixed", "time_per_step_s", "is --work fixed meant?"),
        ([8, 8.2, 9, 11], "per_rank", "time_per_step_s", None),
        ([80, 45, 30, 24], "fixed", "runtime_s", None),
    ],
)
def test_times_that_scale_as_other_work_are_told_first(times, work, column, told):
    sentences = answered(made(times, work=work, column=column)).sentences
    assert ("meant?" in sentences[0]) == bool(told)
    assert not told or sentences[0].startswith(told)


def test_two_counts_are_predicted_with_a_wide_interval_and_one_is_not():
    found = answered(made([8, 4.2], (1, 2)))
    table = found.predictions.set_index("ranks")
    assert table.index.tolist() == [1, 2, 16, 32]
    assert (table["high"] > 1.5 * table["low"])[[16, 32]].all()
    one = answered(made([8], (1,)))
    assert "nothing beyond is predicted, for which 2 rank counts are needed; measure on 2 too" in one.sentences[-1]
    assert one.predictions["low"].isna().all() and one.predictions["fitted"].tolist() == [False]


def test_of_two_counts_the_inefficient_one_does_not_suit_a_limit_of_efficiency():
    assert "recommended: 1 rank; " in answered(made([8, 7], (1, 4)), (8,)).sentences[0]


def test_a_knee_has_a_probability():
    count, probability = answered(made(100 / COUNTS)).knee
    assert count == 64
    assert probability > 0.5
    flat = answered(made([100, 80, 75, 74])).knee
    assert flat is None or flat[0] <= 2


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "the file is empty"),
        (bytes(range(256)), "codec can't decode"),
        (b"ranks,runtime_s\n1,2\0\n", "line 2: there is a zero byte"),
        (b"ranks,runtime_s\n1,2\n2,3,4\n", "line 3: 3 values, but line 1 has 2"),
        (b"ranks,runtime_s\n1,8\n2,n/a\n", "line 3, column 'runtime_s': 'n/a' is not a finite number"),
        (b"ranks,runtime_s,unit\n1,8,ms\n", "'ms', but runtime_s is in seconds"),
        (b"ranks,throughput,unit\n1,8,images/s (8 GPUs)\n", "the remark '(8 gpus)' in a unit is not known"),
        (
            b"ranks;runtime_s\n1;8\n",
            "there is no column 'ranks'; the file has ranks;runtime_s; a CSV file with commas,",
        ),
        (b"GPUs,img/s/GPU\n1,8\n", "there is no column 'ranks'; the file has GPUs, img/s/GPU; a CSV file with"),
        (b"ranks,img/s/GPU\n1,8\n", "no column with times; exactly one of time_per_step_s, time_per_epoch_s,"),
        (b"ranks,time_per_step_s\n1k,4\n2k,3\n", "line 2, column 'ranks': '1k' is not a whole number"),
        (b'ranks,runtime_s\n1,"0,125"\n', "line 2, column 'runtime_s': '0,125'"),
        (b"series,ranks,runtime_s\na,1,8\n,2,4\n", "line 3, column 'series': is empty"),
        (b"ranks,throughput,unit\n1,8,images/s\n2,8,furlongs\n", "line 3, column 'unit': 'furlongs' is not known"),
        (b"ranks,throughput,unit\n1,8,images/s\n2,8,tokens/s\n", "one series has image and token"),
        (b"ranks,throughput,unit\n1,8,images/s/node\n", "the nodes are not known"),
        (b"ranks,runtime_s\n1,2\n2,x\n", "line 3, column 'runtime_s': 'x'"),
        (b"ranks,runtime_s\n1,2\n2,-1\n", "line 3, column 'runtime_s': -1; a number above 0"),
        (b"ranks,runtime_s\n1,2\n2,\n", "line 3, column 'runtime_s': is empty"),
        (b"ranks,runtime_s\n1.5,2\n", "line 2, column 'ranks': '1.5'"),
        (b"ranks,runtime_s\n0,2\n", "line 2, column 'ranks': 0"),
        (b"ranks,nodes,runtime_s\n2,3,2\n", "line 2, column 'nodes': 3"),
        (b"ranks,time\n1,2\n", "line 1: no column with times"),
        (b"gpu,runtime_s\n1,2\n", "line 1: there is no column 'ranks'"),
        (b"ranks,runtime_s,time_per_epoch_s\n1,2,3\n", "line 1: the columns"),
        (b"ranks,runtime_s\n", "there is no row"),
    ],
)
def test_files_that_are_no_points_end_in_a_sentence(tmp_path, content, told):
    (tmp_path / "points.csv").write_bytes(content)
    with pytest.raises(StudyError, match=re.escape(told)):
        read_series_files([str(tmp_path / "points.csv")], "per_rank")


@pytest.mark.parametrize(
    ("unit", "factor"), [("images/s", 1), ("images/min/GPU", 60), ("images/s/node", 4), ("it/s", 1)]
)
def test_a_throughput_is_answered_in_its_own_unit(unit, factor):
    """On nodes of four ranks, all of which are full."""
    ranks = np.array([4.0, 8, 16, 32])
    per = {"images/min/GPU": ranks, "images/s/node": ranks}.get(unit, np.ones(4))
    rates = np.array([400.0, 760, 1400, 2500]) * factor / per
    table = pd.DataFrame({"ranks": ranks.astype(int), "throughput": rates, "unit": unit})
    (series,) = build_series(table, "x.csv", "fixed", 4)
    found = answer(series, [64], goals.load("fastest"))
    shown = found.predictions_in_unit().set_index("ranks")
    assert set(shown["unit"]) == {unit}
    assert shown["median"][[4, 8, 16, 32]].tolist() == pytest.approx(rates.tolist())
    assert (shown["low"] < shown["median"]).all() and (shown["median"] < shown["high"]).all()
    assert f" {unit} (" in found.sentences[0] and "throughput" in found.sentences[0]
    assert "e-" not in found.sentences[0] and "runtime_s" not in found.sentences[0]
    assert f"throughput in {unit}" in to_markdown([found])
    assert "give --amount" in allocation_table([found], None).notes[0]


def test_throughputs_of_rows_in_several_forms_are_one_unit():
    whole = made(COUNTS * 10, work="per_rank", column="throughput", unit=["x/s", "x/s/GPU", "x/min", "x/s/node"])
    by_hand = [1 / 10, 1 / 20, 4 * 60 / 40, 8 / (80 * 2)]
    assert whole.points["time"].tolist() == pytest.approx(by_hand)


@pytest.mark.parametrize(
    ("unit", "quantity", "seconds"),
    [
        ("it/s", "time_per_step_s", 1),
        ("batches/s", "time_per_step_s", 1),
        ("steps/min/GPU", "time_per_step_s", 60),
        ("epochs/h", "time_per_epoch_s", 3600),
    ],
)
def test_steps_and_epochs_are_taken_by_all_ranks_together(unit, quantity, seconds):
    series = made(COUNTS, work="per_rank", column="throughput", unit=unit)
    assert series.points["time"].tolist() == pytest.approx(seconds / COUNTS)
    assert series.quantity == quantity


@pytest.mark.parametrize("work", ["fixed", "per_rank"])
def test_times_of_steps_of_other_batches_are_of_the_same_work(work):
    sizes = [64, 64, 128, 128]
    changing = made([2, 2, 4, 4], column="time_per_step_s", work=work, batch_size=sizes)
    assert changing.points["time"].tolist() == pytest.approx([2.0] * 4)
    assert "is that of a batch of 64" in changing.notes[0]
    throughput = made([10.0] * 4, column="throughput", work=work, batch_size=sizes, unit="x/s")
    assert throughput.points["time"].tolist() == pytest.approx([0.1] * 4 if work == "fixed" else COUNTS / 10)
    missing = made([2.0] * 4, column="time_per_step_s", work=work, batch_size=[64, np.nan, 64, 64])
    assert missing.points["time"].tolist() == [2.0] * 4
    assert "some rows have no batch_size" in missing.notes[0]


def test_a_batch_of_the_other_kind_is_noticed_by_its_growth():
    """Weak scaling with the batch of all ranks, strong scaling with that of one: no step has other work."""
    weak = made([2.0, 2.1, 2.2, 2.3], column="time_per_step_s", work="per_rank", batch_size=64 * COUNTS)
    assert weak.points["time"].tolist() == [2.0, 2.1, 2.2, 2.3]
    assert "batch_size grows with the ranks, so it is read as that of all together: 64 of each" in weak.notes
    strong = made(8 / COUNTS, column="time_per_step_s", batch_size=256 / COUNTS)
    assert strong.points["time"].tolist() == [8, 4, 2, 1]
    assert "batch_size falls as the ranks grow, so it is read as that of one rank: 256 of all together" in strong.notes
    throughput = made(32 * COUNTS, column="throughput", work="per_rank", batch_size=64 * COUNTS, unit="images/s")
    assert throughput.points["time"].tolist() == [2.0] * 4
    assert "times are those of 64 images of each rank" in throughput.notes


def test_a_throughput_does_not_tell_the_time_of_an_energy():
    series = made(10 * COUNTS, column="throughput", unit="x/s", energy_j=7, time_std=3, power_w=300 * COUNTS)
    assert series.points["energy_j"].tolist() == pytest.approx([30.0] * 4), "300 W x ranks x 0.1 s / ranks"
    assert series.points["scatter"].tolist() == [0.0] * 4
    assert "not used: energy_j and time_std" in " ".join(series.notes)


@pytest.mark.parametrize(("given", "per_node"), [(8, 8), (4, 4), (None, 4)])
def test_rows_of_one_node_do_not_tell_how_many_fit(given, per_node):
    table = pd.DataFrame({"ranks": [1, 2, 4], "nodes": 1, "runtime_s": [8, 4, 2]})
    (series,) = build_series(table, "x.csv", "fixed", given)
    assert series.per_node == per_node
    assert ("4 ranks are taken for a full one" in " ".join(series.notes)) == (given is None)


@pytest.mark.parametrize(
    ("values", "unit", "work", "told"),
    [
        ([10.0] * 4, "images/s", "per_rank", "is the throughput that of one rank?"),
        ([10.0] * 4, None, "fixed", "is the throughput that of one rank?"),
        (10 * COUNTS, "images/s/GPU", "per_rank", "is the throughput that of all ranks?"),
        (10 * COUNTS, "images/s/GPU", "fixed", "is the throughput that of all ranks?"),
        ([10, 9.8, 9.7, 9.6], "images/s/GPU", "per_rank", None),
        (9 * COUNTS, "images/s", "fixed", None),
    ],
)
def test_a_throughput_that_grows_as_that_of_another_owner_is_told_first(values, unit, work, told):
    first = answered(made(values, work=work, column="throughput", unit=unit)).sentences[0]
    assert first.startswith(told or "goal fastest")


def test_counts_below_the_smallest_measured_one_change_nothing_else():
    series = made([2.0, 2.1, 2.2], (4, 8, 16), work="per_rank", column="time_per_step_s", load_s=36)
    with_smaller, without = (answer(series, asked, goals.load("fastest"), amount=1000) for asked in ((1, 32), (32,)))
    assert with_smaller.predictions["ranks"].tolist() == [1, 4, 8, 16, 32]
    assert with_smaller.recommendation.reason == without.recommendation.reason
    assert "counts below 4, the smallest measured one, are shown" in " ".join(with_smaller.sentences)
    table = allocation_table([with_smaller], 2.0, amount=1000).frame.set_index("ranks")
    assert table.loc[4, ["speedup", "efficiency"]].tolist() == [1, 1]
    assert table["efficiency"][8] == pytest.approx(2.0 / 2.1)
    assert table["node_hours"][8] == pytest.approx(2 * (1000 * 2.1 * 4 / 8 + 36) / 3600), "2 nodes, with loading"
    pd.testing.assert_frame_equal(table.loc[[4, 8, 16]], allocation_table([without], 2.0, 1000).frame.set_index("ranks")
                                  .loc[[4, 8, 16]])  # fmt: skip


def test_of_two_counts_a_limit_is_one_of_the_whole_job():
    limit = goals.Limit("runtime_s", 50.0, None)
    goal = goals.Goal("cheap", "", "node_hours", (limit,))
    series = made([8, 4.2], (1, 8))
    assert "recommended: 1 rank; " in answer(series, (), goal).sentences[0]
    assert "recommended: 8 ranks; " in answer(series, (), goal, amount=10).sentences[0], "80 and 42 s"


def test_a_goal_with_a_limit_of_accuracy_is_answered_though_points_have_none():
    """It was an exception of Python."""
    goal = goals.Goal("accurate", "", "runtime_s", (goals.Limit("test_accuracy", None, 0.9),))
    found = answer(made([8, 4.2, 2.2, 1.2]), (), goal)
    assert found.pick is None
    assert "no run has test_accuracy" in found.sentences[0]


def write_runs(make_recorded, folder):
    """The rows of two runs, on one and two ranks, which are written to runs.csv."""
    planned = expand(gpus=[1, 2])
    for each in planned:
        make_recorded(each)
    frame = runs_frame(planned, {"nt3": ""}, folder / "local")
    frame.to_csv(folder / "runs.csv", index=False)
    return frame


def test_runs_of_this_project_are_measured(make_recorded, tmp_path):
    frame = write_runs(make_recorded, tmp_path)
    (series,) = read_series_files([str(tmp_path / "runs.csv")], "epochs")
    assert series.origin == "measured"
    assert series.counts.tolist() == [1, 2]
    assert series.points["time"].tolist() == frame["runtime_s"].tolist()
    others = frame.assign(framework="pytorch", runtime_s=9 * frame["runtime_s"])
    pd.concat([frame, others]).to_csv(tmp_path / "runs.csv", index=False)
    one, other = read_series_files([str(tmp_path / "runs.csv")], "epochs")
    assert sorted(one.points["time"]) != sorted(other.points["time"]), "another framework is another job"
    assert {one.name.partition("framework=")[2], other.name.partition("framework=")[2]} == {"pytorch", "tensorflow"}
    frame.assign(status="failed").to_csv(tmp_path / "runs.csv", index=False)
    with pytest.raises(StudyError, match="has no successful run"):
        read_series_files([str(tmp_path / "runs.csv")], "epochs")


def test_points_of_the_name_of_a_measured_series_are_further_points_of_it_marked_as_imported(make_recorded, tmp_path):
    frame = write_runs(make_recorded, tmp_path)
    files = [str(tmp_path / name) for name in ("runs.csv", "more.csv")]
    (alone,) = read_series_files(files[:1], "epochs")
    rows = pd.DataFrame({"series": alone.name, "ranks": [2, 4, 8], "runtime_s": [99.0, 5.0, 4.0]})
    rows.to_csv(files[1], index=False)
    (series,) = read_series_files(files[::-1], "epochs")
    assert series.counts.tolist() == [1, 2, 4, 8] and series.imported == (4, 8)
    assert series.times.tolist() == [*frame["runtime_s"], 5.0, 4.0], "what was measured counts on 2 ranks"
    found = answered(series, (16,))
    note = next(line for line in found.sentences if line.startswith("imported from"))
    assert "more.csv, not measured here: the times on 4, 8 ranks; its times on 2 ranks are not used" in note
    origins = ["measured", "measured", "imported", "imported", "predicted"]
    assert found.predictions["origin"].tolist() == origins
    assert allocation_table([found], None, 1.0, None, 1.0, "x").frame["origin"].tolist() == origins
    assert "points measured and imported" in to_markdown([found])
    rows.assign(series="another").to_csv(files[1], index=False)
    assert len(read_series_files(files, "epochs")) == 2, "of another name is another series"
    rows.rename(columns={"runtime_s": "time_per_step_s"}).to_csv(files[1], index=False)
    with pytest.raises(StudyError, match="has time_per_step_s, the measured runs of this name have runtime_s"):
        read_series_files(files, "epochs")


@pytest.mark.slow
def test_files_and_studies_are_predicted_alike(tmp_path):
    """`study predict runs.csv` and `make recommend` on the same runs: the same runtimes, and the same count."""
    frame = with_energy(runs()).assign(time_per_epoch_steady_s=lambda frame: 0.99 * frame["time_per_epoch_s"])
    frame.to_csv(tmp_path / "runs.csv", index=False)
    (of_study,) = computed(frame)
    (prediction,) = of_study.predictions.values()
    recommended = recommend(prediction, goals.load("fastest"))
    (series,) = read_series_files([str(tmp_path / "runs.csv")], "epochs")
    of_file = answer(series, prediction.settings["ranks"].tolist(), goals.load("fastest"))
    low, median, high = prediction.interval("runtime_s")
    assert of_file.predictions["ranks"].tolist() == prediction.settings["ranks"].tolist()
    for name, values in (("low", low), ("median", median), ("high", high)):
        assert of_file.predictions[name].to_numpy() == pytest.approx(values, rel=1e-9)
    assert of_file.pick == recommended.pick


def test_the_command_keeps_its_contract(tmp_path):
    (tmp_path / "points.csv").write_text("series,ranks,time_per_step_s\n" + "".join(
        f"{name},{ranks},{1 / ranks + 0.01}\n" for name in "ba" for ranks in (1, 2, 4, 8)
    ))  # fmt: skip
    line = [sys.executable, "-m", "study.commands.main", "predict", tmp_path / "points.csv", "--work", "fixed",
            "--ranks-per-node", "4", "--predict", "64,16", "--price", "2", "--grid", "400",
            "--output", tmp_path / "out.csv"]  # fmt: skip
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    table = pd.read_csv(tmp_path / "out.csv")
    assert list(table) == ["series", "ranks", "fitted", "low", "median", "high"]
    assert table["series"].tolist() == ["a"] * 6 + ["b"] * 6
    assert table["ranks"].tolist() == [1, 2, 4, 8, 16, 64] * 2
    assert table["fitted"].tolist() == [True] * 4 + [False] * 2 + [True] * 4 + [False] * 2
    assert (table["low"] < table["median"]).all() and (table["median"] < table["high"]).all()
    assert "recommended: " in (tmp_path / "out.md").read_text()
    for figure in ("out.svg", "out_allocation/curves.svg", "out_allocation/curves.pdf"):
        assert (tmp_path / figure).stat().st_size > 1000
    for form in ("md", "html", "tex"):
        assert "we ask for" in (tmp_path / "out_allocation" / f"allocation.{form}").read_text()


def test_the_interval_of_a_single_measurement_has_the_scatter_of_the_repeats():
    """Three repeats with a standard deviation of a tenth: one run at 16 ranks may be as far from the mean of many."""
    ranks = np.repeat(COUNTS, 3).astype(int)
    many = made(np.tile([0.9, 1.0, 1.1], 4) * 8 / ranks, ranks)
    once = made(8 / COUNTS, time_std=0.8 / COUNTS)
    for series in (many, once):
        assert series.variances[1] == pytest.approx(0.1)
        low, median, high = series.fit_model().predict_interval(np.array([16.0]))
        half = 1.645 * np.sqrt(np.log(1.01))
        assert np.log(median / low) > half and np.log(high / median) > half
        assert np.log(high / low) < 6 * half
    measured = answered(many).recommendation.candidates.set_index("ranks").loc[8]
    assert np.log(measured["predicted_runtime_s_high"] / measured["predicted_runtime_s_low"]) > 1.9 * half
    assert made(8 / COUNTS).variances[1] == 0


def test_a_count_that_was_measured_once_scatters_as_usual_and_repeats_as_they_do():
    once = _Job(made([8, 4.2], (1, 2)), [1, 2], 1.0).tabulate_measured()
    assert once["runtime_s_repeats"].tolist() == [2, 2] and once["runtime_s_spread"].tolist() == [0.038**2] * 2
    thrice = _Job(made(np.tile([0.9, 1, 1.1], 2), [1, 1, 1, 2, 2, 2]), [1, 2], 1.0).tabulate_measured()
    assert thrice["runtime_s_repeats"].tolist() == [3, 3]
    assert thrice["runtime_s_spread"].tolist() == pytest.approx([2 * 0.1**2] * 2)


def test_a_count_without_repeats_is_no_surer_than_those_with_repeats():
    times = np.array([0.9, 1, 1.1, 0.9, 1, 1.1, 1.0, 1.0, 1.0, 1.3])
    series = made(times, [1, 1, 1, 2, 2, 2, 4, 4, 4, 8], work="per_rank")
    pooled = 0.02 / 3  # three counts with repeats, one of which agree by chance
    assert series.variances[0] == pytest.approx(pooled)
    noise = 0.038**2
    assert series.fit_model().weights == pytest.approx([noise / max(pooled / 3, noise)] * 3 + [noise / pooled])
    assert made(8 / COUNTS, time_std=[0.8, 0, 0, 0]).variances[0] == pytest.approx(0.01)


def test_the_knee_is_that_of_the_job_with_its_loading():
    """100 s on one rank and 100 s of loading: perfect steps do not halve the job, and 2 ranks speed it up by 4/3."""
    times = {"column": "time_per_epoch_s", "times": 100 / COUNTS}
    assert answered(made(**times)).knee[0] == 64
    loading = answered(made(**times, load_s=100.0))
    assert loading.knee is None
    assert "The runtime_s is that of a job of 1 x one epoch (--amount)" in loading.sentences[0]
    assert answer(made(**times, load_s=100.0), (), goals.load("fastest"), amount=1e6).knee[0] == 64


def test_a_table_for_an_allocation_has_what_centres_ask_for():
    series = made([8, 4.1, 2.1, 1.1], power_w=[300, 600, 1200, 2400])
    table = allocation_table([answered(series, (16,))], 2.0, amount=3600, grid=500, pue=1.2)
    energy = table.frame.set_index("ranks")["energy_kwh"]
    predicted = table.frame.set_index("ranks").loc[16]
    assert energy[1] == pytest.approx(300 * 8 / 1000)
    assert energy[16] == pytest.approx(300 * 16 * predicted["time_s"] / 1000), "at the power of a rank on 8"
    assert table.frame["co2e_modelled_kg"].tolist() == pytest.approx((table.frame["energy_kwh"] * 0.6).tolist())
    sentence = table.notes[0]
    assert f"{predicted['node_hours']:.4g} node-hours ({2 * predicted['node_hours']:.4g} in money)" in sentence
    assert f"predicted time {predicted['time_s']:.3g} h, 90 % interval" in sentence


def test_a_disturbed_repeat_at_one_count_does_not_decide_about_the_others():
    """Of 12 runs one took ten times as long: the others' 100, 31 and 20 s are as sure as without it."""
    ranks = np.repeat(COUNTS, 3).astype(int)
    series = made([100, 101, 99, 54, 55, 540, 31, 30.5, 31.5, 20, 20.5, 19.5], ranks)
    pooled = (0.01**2 + 0.5**2 / 31**2 + 0.5**2 / 20**2) / 3  # of the three counts; their deviations are 1, 0.5, 0.5 s
    own = np.var([54, 55, 540], ddof=1) / np.mean([54, 55, 540]) ** 2
    assert series.variances[0] == pytest.approx([pooled, own, pooled, pooled])
    found = answered(series)
    assert found.recommendation.pick == 8, "62 % of the efficiency of one rank; it was 1 rank, with 1 to 242 s"
    assert found.predictions.set_index("ranks")["median"][[1, 4, 8]].tolist() == pytest.approx([100, 31, 20], rel=0.01)
    assert "times on 2 ranks scatter by 130%" in " ".join(found.sentences)
    assert series.variances[1] ** 2 == pytest.approx((3 * pooled + own) / 4), "a further run may be disturbed too"


def test_each_count_has_its_own_loading():
    """An epoch and its loading: 100 + 10, 54 + 20, 31 + 30 and 20 + 40 s."""
    times = {"times": [100, 54, 31, 20], "column": "time_per_epoch_s"}
    series = made(**times, load_s=[10.0, 20, 30, 40])
    found = answered(series, (16,))
    rows = found.recommendation.candidates.set_index("ranks")
    assert rows["measured_runtime_s"][[1, 2, 4, 8]].tolist() == [110, 74, 61, 60]
    assert found.recommendation.pick == 2, "110 / 61 / 4 is below one half"
    table = allocation_table([found], 2.0).frame.set_index("ranks")
    assert table["node_hours"][[1, 2, 4, 8]].tolist() == pytest.approx(
        [110 / 3600, 74 / 3600, 61 / 3600, 2 * 60 / 3600]
    )
    loads = series.loads(np.array([0.5, 3, 16]))
    assert loads == pytest.approx([10, 20 + 10 * np.log(1.5) / np.log(2), 40])
    assert made(**times, load_s=[np.nan, 20, np.nan, np.nan]).loads(COUNTS).tolist() == [20] * 4
    throughput = made(COUNTS * 10, column="throughput", unit="x/s", load_s=[0.0, 10, 10, 10])
    assert "measured runtime_s 0.1 (" in answered(throughput).sentences[0], "no rate is that of a job that loads"


def test_epochs_are_not_divided_among_more_ranks_than_there_are():
    """8 epochs on one rank: 8 ranks have one each, and 16 would have half of one."""
    series = made([10, 10.5, 11, 12], work="epochs", column="time_per_epoch_s")
    found = answer(series, (16, 32), goals.load("fastest"), amount=8)
    assert found.recommendation.pick == found.knee[0] == 8
    assert "counts above 8 are not recommended" in " ".join(found.sentences)
    assert answer(series, (), goals.load("fastest"), amount=4).recommendation.pick == 4
    one_and_a_half = " ".join(answer(series, (), goals.load("fastest"), amount=1.5).sentences)
    assert "counts above 1 are not recommended" in one_and_a_half
    two = made([10, 10.5], (1, 4), work="epochs", column="time_per_epoch_s")
    assert answer(two, (), goals.load("fastest"), amount=3).pick == 1
    assert answer(series, (16, 32), goals.load("fastest")).recommendation.pick == 32, "the time of an epoch only"


def test_the_energy_of_one_repeat_is_that_of_the_mean_time():
    """100 W for 100 s; the other repeat took 200 s, and its energy is not known."""
    columns = {"energy_j": [10000.0, np.nan, 12000, 14000]}
    points = made([100, 200, 60, 33], (1, 1, 2, 4), **columns).points
    assert points["energy_j"].tolist() == pytest.approx([100 * 150, 12000, 14000])
    both = made([100, 300, 60, 33], (1, 1, 2, 4), energy_j=[10000.0, 50000, 12000, 14000]).points
    assert both["energy_j"][0] == pytest.approx(30000), "the mean"


def test_a_deviation_in_another_unit_than_the_times_is_asked_about():
    assert "is time_std in the unit of the times?" in " ".join(made([0.3, 0.2], (1, 2), time_std=[3.0, 2]).notes)


@pytest.mark.parametrize(("watts", "told"), [((15e3, 6e4), ""), ((15e3, 9e4), "they are 2.25e+04 W of a rank"),
                                             ((300, 310), "those of all ranks together?")])  # fmt: skip
def test_a_power_that_ranks_cannot_have_is_asked_about(watts, told):
    notes = " ".join(made([100, 30], (1, 4), energy_j=[100 * watts[0], 30 * watts[1]]).notes)
    assert told in notes and ("power" in notes or " W " in notes) == bool(told)

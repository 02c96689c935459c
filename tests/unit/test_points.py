"""Predictions from anybody's points: the contract of scripts/predict.py, and what every series must obey."""

import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from examples import expand
from hypothesis import given, settings
from hypothesis import strategies as st

from study.core.errors import StudyError
from study.core.files import write_json
from study.core.paths import ROOT
from study.prediction import goals, series_model
from study.prediction.imports import read_any
from study.prediction.points import read_points, series_of
from study.prediction.series_answer import answer
from study.prediction.series_model import COLUMNS, SHAPES, TRENDS, Places, fit_series
from study.prediction.simple_fits import perfect_scaling, power_law, three_terms
from study.records.record import make_record
from study.records.tidy import runs_frame
from study.report.tables.allocation import allocation_table

COUNTS = np.array([1.0, 2.0, 4.0, 8.0])
BEYOND = np.array([16.0, 64.0])


def made(times, ranks=(1, 2, 4, 8), work="fixed", column="runtime_s", **columns):
    (series,) = series_of(pd.DataFrame({"ranks": ranks, column: times, **columns}), "x.csv", work, 4)
    return series


def answered(series, asked=(16, 32), goal="fastest"):
    return answer(series, asked, goals.load(goal))


@pytest.mark.parametrize("name", list(TRENDS))
def test_a_trend_alone_is_a_covariance(name):
    matrix = TRENDS[name](Places.of(np.array([1.0, 2, 4, 8, 16, 32]), 4))
    assert matrix == pytest.approx(matrix.T)
    assert np.linalg.eigvalsh(matrix).min() > -1e-9
    assert matrix[0] == pytest.approx(0), "one rank has no slowdown"


def test_trends_know_the_node():
    places = Places.of(np.array([2.0, 4.0, 16.0]), 4)
    assert COLUMNS["within_node"](places).tolist() == [1, 2, 2]
    assert COLUMNS["between_nodes"](places).tolist() == [0, 0, 2]
    assert COLUMNS["leaving_node"](places).tolist() == [0, 0, 1]
    assert {name: shape(places).tolist() for name, shape in SHAPES.items()} == {
        "undivided": [2, 4, 16], "node_contention": [2, 4, 4], "network_contention": [1, 1, 4],
    }  # fmt: skip


def test_simple_fits_find_what_they_assume():
    assert power_law(COUNTS, 7 / COUNTS**0.9, BEYOND, True) == pytest.approx(7 / BEYOND**0.9)
    assert power_law(COUNTS, 7 + np.log(COUNTS), BEYOND, False) == pytest.approx(7 + np.log(BEYOND))
    times = 2 + 30 / BEYOND + 0.5 * np.log(BEYOND)
    assert three_terms(COUNTS, 2 + 30 / COUNTS + 0.5 * np.log(COUNTS), BEYOND, True) == pytest.approx(times)
    assert perfect_scaling(COUNTS, 8 / COUNTS, BEYOND, True) == pytest.approx(8 / BEYOND)


@pytest.mark.parametrize("fixed", [True, False])
def test_a_serial_part_is_found(fixed):
    """Amdahl's law: a tenth of a rank's work is not divided. The interval must hold on 16 times as many ranks."""
    ranks = np.array([1.0, 2, 4, 8, 16])
    times = lambda n: (0.9 + 0.1 * n) * 100 / (n if fixed else 1)  # noqa: E731
    low, median, high = fit_series(ranks, times(ranks), fixed, 1).interval(np.array([64.0]))
    assert low[0] <= times(64) <= high[0]
    assert median[0] == pytest.approx(times(64), rel=0.3)


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
    (one,) = series_of(table, "x", work, 4)
    (other,) = series_of(table.assign(runtime_s=unit * times).iloc[list(order)], "x", work, 4)
    for first, second in zip(one.model().interval(BEYOND), other.model().interval(BEYOND), strict=True):
        assert second == pytest.approx(unit * first, rel=1e-6)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(st.lists(st.floats(0.5, 2), min_size=4, max_size=4), st.integers(1, 5))
def test_certainty_does_not_come_from_rows_or_counts_without_data(factors, copies):
    """Copies of rows, and further counts to predict, are no data."""
    times = np.array(factors) / COUNTS
    rows = pd.DataFrame({"ranks": COUNTS.astype(int), "runtime_s": times})
    (one,), (many,) = (series_of(each, "x", "fixed", 4) for each in (rows, pd.concat([rows] * copies)))
    low, _, high = one.model().interval(BEYOND)
    for model, counts in ((many.model(), BEYOND), (one.model(), np.append(BEYOND, [128.0, 4096.0]))):
        again = model.interval(counts)
        assert (again[2] / again[0])[:2] == pytest.approx(high / low, rel=1e-6)
    width = one.model().interval(np.array([8.0, 16, 32, 64, 128]))
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


def test_next_is_what_narrows_the_answer_or_shows_whether_more_pay():
    predicted = " ".join(answered(made([8, 4.2, 2.3], (1, 2, 4)), (8, 16, 32)).sentences)
    assert "next, measure on 8 ranks: it is expected to narrow" in predicted
    measured = " ".join(answered(made([8, 5, 3.5, 3])).sentences)
    assert "next, measure on 16 ranks: the recommended count is measured" in measured
    assert "by 0%" not in predicted + measured


def test_far_counts_and_saturation_are_judged_by_doublings():
    words = " ".join(answered(made([8, 4.2, 2.3, 1.4]), (1024,)).sentences)
    assert "counts above 64 are more than 8 times the largest" in words
    many = made(1000 / np.arange(1, 40) + 0.01, range(1, 40))
    assert "saturated" not in " ".join(answered(many, (80,)).sentences)


def test_two_counts_are_an_answer_and_predict_nothing():
    found = answered(made([8, 4.2], (1, 2)))
    assert "of the measured counts 1 and 2, 2 ranks suits the goal fastest" in found.sentences
    assert "nothing beyond is predicted" in " ".join(found.sentences)
    assert found.predictions["ranks"].tolist() == [1, 2]
    assert found.predictions["low"].isna().all()
    assert "nothing beyond is predicted" in " ".join(answered(made([8], (1,))).sentences)


def test_of_two_counts_the_inefficient_one_does_not_suit_a_limit_of_efficiency():
    assert "1 rank suits the goal fastest" in answered(made([8, 7], (1, 4))).sentences[0]


def test_a_knee_has_a_probability():
    count, probability = answered(made(100 / COUNTS)).knee
    assert count == 64
    assert probability > 0.5
    flat = answered(made([100, 80, 75, 74])).knee
    assert flat is None or flat[0] <= 2


def test_a_throughput_of_one_rank_is_a_throughput():
    whole = made(COUNTS * 10, work="per_rank", column="throughput", unit="images/s")
    each = made([10.0] * 4, work="per_rank", column="throughput", unit="images/s/GPU")
    for series in (whole, each):
        assert series.points["time"].tolist() == pytest.approx([0.1] * 4)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("ranks,runtime_s\n1,2\n2,x\n", "line 3, column 'runtime_s': 'x'"),
        ("ranks,runtime_s\n1,2\n2,-1\n", "line 3, column 'runtime_s': -1; a number above 0"),
        ("ranks,runtime_s\n1,2\n2,\n", "line 3, column 'runtime_s': is empty"),
        ("ranks,runtime_s\n1.5,2\n", "line 2, column 'ranks': '1.5'"),
        ("ranks,runtime_s\n0,2\n", "line 2, column 'ranks': 0"),
        ("ranks,nodes,runtime_s\n2,3,2\n", "line 2, column 'nodes': 3"),
        ("ranks,time\n1,2\n", "line 1: no column with times"),
        ("gpu,runtime_s\n1,2\n", "line 1: there is no column 'ranks'"),
        ("ranks,runtime_s,time_per_epoch_s\n1,2,3\n", "line 1: the columns"),
        ('series,ranks,runtime_s\n"a\nb",1,2\nc,2,0\n', "line 4, column 'runtime_s': 0"),
        ("ranks,runtime_s\n", "there is no row"),
    ],
)
def test_wrong_points_are_refused_with_line_and_column(tmp_path, text, told):
    (tmp_path / "points.csv").write_text(text)
    with pytest.raises(StudyError, match="points.csv") as error:
        read_points(tmp_path / "points.csv", "fixed")
    assert told in str(error.value)


TITAN = "[rank0]: Building 1-D device mesh with ['dp_shard'], [8]\n" + "".join(
    f"\x1b[32mstep: {step}  loss: 9.1  memory: 3.0GiB(4%)  tps: {tps}  tflops: 10.1\x1b[39m\n"
    for step, tps in ((1, "120"), (10, "3,200"), (20, "3,210"), (30, "3,190"))
)
NANO = "".join(
    f"[INFO]: iteration: {step} / 9 | consumed_tokens: 1M | elapsed_time_per_iteration_ms: {ms} | "
    "tokens_per_sec: 81.2K | tokens_per_sec_per_gpu: 10.1K | global_batch_size: 64\n"
    for step, ms in ((1, "9.1K"), (2, "812"), (3, "808"))
)
MLPERF = "".join(
    ":::MLLOG " + json.dumps({"key": key, "time_ms": ms}) + "\n"
    for key, ms in (("run_start", 5000), ("run_stop", 65_000))
)


@pytest.mark.parametrize(
    ("text", "prefix", "ranks", "time"),
    [(TITAN, "", 8, 1 / 3200), (NANO, "", 8, 0.81), (MLPERF, "16:", 16, 60.0)],
)
def test_logs_give_points(tmp_path, text, prefix, ranks, time):
    (tmp_path / "a.log").write_text(text)
    (series,) = read_any([f"{prefix}{tmp_path / 'a.log'}"], "per_rank")
    assert series.points[["ranks", "time"]].to_numpy()[0] == pytest.approx([ranks, time], rel=0.01)
    assert series.origin == "imported"


def test_a_log_without_its_ranks_is_refused(tmp_path):
    (tmp_path / "a.log").write_text(MLPERF)
    with pytest.raises(StudyError, match="give RANKS:"):
        read_any([str(tmp_path / "a.log")], "fixed")
    (tmp_path / "a.log").write_text("nothing\n")
    with pytest.raises(StudyError, match="has no lines of torchtitan, nanotron, MLPerf"):
        read_any([str(tmp_path / "a.log")], "fixed")


@pytest.mark.parametrize("names", [("Name,config.world_size,summary.train_samples_per_second"),
                                   ("Run ID,params.num_gpus,metrics.images_per_second")])  # fmt: skip
def test_exports_of_trackers_give_points(tmp_path, names):
    (tmp_path / "export.csv").write_text(f"{names}\na,1,10\nb,2,19\nc,4,37\n")
    (series,) = read_any([str(tmp_path / "export.csv")], "per_rank")
    assert series.counts.tolist() == [1, 2, 4]
    assert series.points["time"].tolist() == pytest.approx([0.1, 2 / 19, 4 / 37])


@pytest.mark.parametrize(
    "text",
    [
        "\ufeffranks,runtime_s\r\n1,8\r\n2,4.2\r\n4,1000\r\n",
        "Ranks ; Runtime_S\n1;8,0\n2;4,2\n4;1.000,0\n",
        "ranks\truntime_s\n1.0\t8\n2.0\t4.2\n4.0\t1e3\n\n",
        '# measured\n\nranks,runtime_s\n1,8\n\n2,4.2\n4,"1,000"\n',
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_files_of_spreadsheets_are_read(tmp_path, text, encoding):
    (tmp_path / "points.csv").write_bytes(text.encode(encoding))
    for (series,) in (read_points(tmp_path / "points.csv", "fixed"), read_any([str(tmp_path / "points.csv")], "fixed")):
        assert series.points[["ranks", "time"]].to_numpy().tolist() == [[1, 8], [2, 4.2], [4, 1000]]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "the file is empty"),
        (b"\n# nothing\n", "the file is empty"),
        (bytes(range(256)), "is not UTF-8 text"),
        (b"ranks,runtime_s\n1,2\0\n", "line 2: there is a zero byte"),
        (b"\n\nranks,runtime_s\n1,2\n2,3,4\n", "line 5: 3 values, but line 3 has 2"),
        (b"ranks;runtime_s\n1;8\n2;n/a\n", "line 3, column 'runtime_s': 'n/a' is not a finite number"),
        (b"ranks,runtime_s,unit\n1,8,ms\n", "'ms', but runtime_s is in seconds"),
        (b"ranks,throughput,unit\n1,8,images/s\n2,8,furlongs\n", "line 3, column 'unit': 'furlongs' is not known"),
        (b"ranks,throughput,unit\n1,8,images/s\n2,8,tokens/s\n", "one series has image and token"),
        (b"ranks,throughput,unit\n1,8,images/s/node\n", "the nodes are not known"),
    ],
)
def test_files_that_are_no_points_end_in_a_sentence(tmp_path, content, told):
    (tmp_path / "points.csv").write_bytes(content)
    with pytest.raises(StudyError) as error:
        read_any([str(tmp_path / "points.csv")], "per_rank")
    assert told in str(error.value)


def test_throughputs_of_rows_in_several_forms_are_one_unit():
    whole = made(COUNTS * 10, work="per_rank", column="throughput", unit=["x/s", "x/s/GPU", "x/min", "x/s/node"])
    by_hand = [1 / 10, 1 / 20, 4 * 60 / 40, 8 / (80 * 2)]
    assert whole.points["time"].tolist() == pytest.approx(by_hand)
    steps = made(COUNTS, work="per_rank", column="throughput", unit="it/s")
    assert steps.points["time"].tolist() == pytest.approx(1 / COUNTS), "a step is taken by all ranks together"


@pytest.mark.parametrize("work", ["fixed", "per_rank"])
def test_times_of_steps_of_other_batches_are_of_the_same_work(work):
    changing = made(2 * COUNTS, column="time_per_step_s", work=work, batch_size=64 * COUNTS)
    assert changing.points["time"].tolist() == pytest.approx([2.0] * 4)
    assert "is that of a batch of 64" in changing.notes[0]
    throughput = made([10.0] * 4, column="throughput", work=work, batch_size=64 * COUNTS, unit="x/s")
    assert throughput.points["time"].tolist() == pytest.approx([0.1] * 4 if work == "fixed" else COUNTS / 10)
    missing = made([2.0] * 4, column="time_per_step_s", work=work, batch_size=[64, np.nan, 64, 64])
    assert missing.points["time"].tolist() == [2.0] * 4
    assert "some rows have no batch_size" in missing.notes[0]


def test_repeats_that_scatter_and_half_empty_nodes_are_told():
    assert "times on 1 rank scatter by" in " ".join(made([8, 2, 1, 1], (1, 1, 2, 4)).notes)
    (series,) = series_of(
        pd.DataFrame({"ranks": [1, 2, 4], "nodes": [1, 2, 1], "runtime_s": [8, 4, 2]}), "x.csv", "fixed", 2
    )
    assert "2 ranks were on 2 nodes, though 4 fit on one" in " ".join(series.notes)
    assert "--ranks-per-node 2 is not used" in " ".join(series.notes)


def test_an_export_leaves_out_runs_that_did_not_finish(tmp_path):
    (tmp_path / "wandb.csv").write_text(
        '"Name","State","Runtime","config.world_size","train/tokens_per_sec_per_gpu"\n'
        '"a","finished","90","8","1,000"\n"b","crashed","3","16","20"\n"c","finished","90","16",""\n'
        '"d","finished","90","16","990.0"\n'
    )
    (series,) = read_any([str(tmp_path / "wandb.csv")], "per_rank")
    assert series.points["time"].tolist() == pytest.approx([1 / 1000, 1 / 990])
    assert "2 rows of runs that did not finish or lack a value left out" in series.notes
    (tmp_path / "mlflow.csv").write_text(
        "Start Time,Duration,Run ID,Name,Status,num_gpus\n"
        "x,1.5min,i,a,FINISHED,1\nx,45s,j,b,FINISHED,2\nx,1s,k,c,FAILED,4\n"
    )
    (series,) = read_any([str(tmp_path / "mlflow.csv")], "fixed")
    assert series.points["time"].tolist() == pytest.approx([90, 45])


def test_a_history_of_one_run_is_its_later_half(tmp_path):
    for ranks, value in ((1, 100), (2, 52)):
        rows = "".join(f"{step},{step * 2},{9 * value if step < 2 else value}\n" for step in range(6))
        (tmp_path / f"{ranks}.csv").write_text(f"_step,_runtime,train/step_time_ms\n{rows}")
    (series,) = read_any([f"{ranks}:{tmp_path / f'{ranks}.csv'}" for ranks in (1, 2)], "fixed")
    assert series.points[["ranks", "time"]].to_numpy() == pytest.approx(np.array([[1, 0.1], [2, 0.052]]))


def test_a_run_in_mlflows_store_gives_a_point(tmp_path):
    for name, text in (("params/world_size", "4"), ("metrics/train/samples_per_second", "1 5 0\n2 40 1\n3 40 2\n")):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (series,) = read_any([str(tmp_path)], "fixed")
    assert series.points[["ranks", "time"]].to_numpy().tolist() == [[4, 1 / 40]]
    with pytest.raises(StudyError, match="is a folder without metrics"):
        read_any([str(tmp_path / "params")], "fixed")


def test_logs_of_several_runs_or_of_none_that_ended_are_refused(tmp_path):
    (tmp_path / "a.log").write_text(TITAN + TITAN.replace("[8]", "[16]"))
    with pytest.raises(StudyError, match="has runs on 8 and 16 ranks"):
        read_any([str(tmp_path / "a.log")], "per_rank")
    (tmp_path / "a.log").write_text(
        MLPERF.replace('"time_ms": 65000', '"metadata": {"status": "aborted"}, "time_ms": 9')
    )
    with pytest.raises(StudyError, match="its run was aborted"):
        read_any([f"8:{tmp_path / 'a.log'}"], "fixed")


def test_validation_is_no_training_and_three_digits_name_no_large_count(tmp_path):
    lines = "".join(f"validate step: {step}  loss: 9  memory: 1GiB  tps: 9\n" for step in range(9))
    (tmp_path / "a.log").write_text(TITAN + lines)
    assert read_any([str(tmp_path / "a.log")], "per_rank")[0].points["time"][0] == pytest.approx(1 / 3200, rel=0.01)
    (tmp_path / "a.log").write_text(NANO.replace("81.2K", "10.4M"))
    with pytest.raises(StudyError, match="does not name its ranks"):
        read_any([str(tmp_path / "a.log")], "per_rank")


@pytest.mark.parametrize("value", ["x", "0"])
def test_a_wrong_number_of_an_export_is_named_by_its_line(tmp_path, value):
    text = f'Name,config.world_size,metrics.images_per_second\n"a\nb",1,10\nc,2,{value}\n'
    (tmp_path / "export.csv").write_text(text)
    with pytest.raises(StudyError, match="export.csv: line 4, column"):
        read_any([str(tmp_path / "export.csv")], "per_rank")


def test_runs_of_this_project_are_measured(make_run, tmp_path):
    planned = expand(gpus=[1, 2])
    for each in planned:
        folder = make_run(each)
        write_json(folder / "record.json", make_record(folder))
    frame = runs_frame(planned, {"nt3": ""}, tmp_path / "local")
    frame.to_csv(tmp_path / "runs.csv", index=False)
    (series,) = read_any([str(tmp_path / "runs.csv")], "epochs")
    assert series.origin == "measured"
    assert series.counts.tolist() == [1, 2]
    assert series.points["time"].tolist() == frame["runtime_s"].tolist()
    frame.assign(status="failed").to_csv(tmp_path / "runs.csv", index=False)
    with pytest.raises(StudyError, match="has no successful run"):
        read_any([str(tmp_path / "runs.csv")], "epochs")


@pytest.mark.slow
def test_the_command_keeps_its_contract(tmp_path):
    (tmp_path / "points.csv").write_text("series,ranks,time_per_step_s\n" + "".join(
        f"{name},{ranks},{1 / ranks + 0.01}\n" for name in "ba" for ranks in (1, 2, 4, 8)
    ))  # fmt: skip
    line = [sys.executable, "scripts/predict.py", tmp_path / "points.csv", "--work", "fixed", "--ranks-per-node", "4",
            "--predict", "64,16", "--price", "2", "--grid", "400", "--output", tmp_path / "out.csv"]  # fmt: skip
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    table = pd.read_csv(tmp_path / "out.csv")
    assert list(table) == ["series", "ranks", "fitted", "low", "median", "high"]
    assert table["series"].tolist() == ["a"] * 6 + ["b"] * 6
    assert table["ranks"].tolist() == [1, 2, 4, 8, 16, 64] * 2
    assert table["fitted"].tolist() == [True] * 4 + [False] * 2 + [True] * 4 + [False] * 2
    assert (table["low"] < table["median"]).all() and (table["median"] < table["high"]).all()
    assert "recommended: " in (tmp_path / "out.md").read_text()
    assert (tmp_path / "out.svg").stat().st_size > 1000
    for form in ("md", "html", "tex"):
        assert "we ask for" in (tmp_path / "out_allocation" / f"allocation.{form}").read_text()


def test_the_priors_are_those_of_the_file():
    assert set(series_model.declared()["trends"]) == set(TRENDS)
    assert set(series_model.declared()["shapes"]["probability"]) == set(SHAPES)


def test_a_table_for_an_allocation_has_what_centres_ask_for():
    series = made([8, 4.2, 2.3, 1.4], power_w=[300, 600, 1200, 2400])
    table = allocation_table([answered(series)], 2.0, amount=3600, grid=500, pue=1.2)
    energy = table.frame.set_index("ranks")["energy_kwh"]
    predicted = table.frame.set_index("ranks").loc[16]
    assert energy[1] == pytest.approx(300 * 8 / 1000)
    assert energy[16] == pytest.approx(300 * 16 * predicted["time_s"] / 1000), "at the power of a rank on 8"
    assert table.frame["co2e_modelled_kg"].tolist() == pytest.approx((table.frame["energy_kwh"] * 0.6).tolist())
    sentence = table.notes[0]
    assert f"{predicted['node_hours']:.4g} node-hours ({2 * predicted['node_hours']:.4g} in money)" in sentence
    assert f"predicted time {predicted['time_s']:.3g} h, 90 % interval" in sentence

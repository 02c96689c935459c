"""Figures: the data chosen and summarised, by value, and what of them is drawn, by looking at the axes."""

import dataclasses
import itertools
import math
import re
import sys

import matplotlib
import numpy as np
import pandas as pd
import pytest
from examples import expand
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from study.commands.steps import make_figure
from study.experiment import expansion
from study.experiment.parameters import PARAMETERS, list_observing_keys
from study.experiment.study import Study
from study.report.figures.description import has_targets, list_identifying_columns, load_description, load_figures
from study.report.figures.drawing import draw, write_figure
from study.report.figures.selection import select_points
from study.report.figures.style import set_value_axis

REASON = "no power sensor is configured for machine local"
DEFAULTS = {name: parameter.default for name, parameter in PARAMETERS.items() if parameter.has_default}
RUN = {
    **DEFAULTS,
    "machine": "local", "benchmark": "nt3", "dataset": "candle", "scaling": "strong", "epochs": 384, "gpus": 1,
    "batch_size": 20, "batch_scaling": "none", "learning_rate_scaling": "linear", "loader": "read_csv",
    "staging": "none", "input_pipeline": "tf_data", "sharding": "none",
    "straggler_loads": 0, "checkpoint_epochs": 0, "trace": False, "profile": False, "repeat": 1,
    "status": "ok", "failure_kind": None, "runtime_s": 20.0, "load_s": 3.0, "train_s": 15.0, "time_per_epoch_s": 1.5,
    "shared_read_mb": 160.0, "accuracy": 0.9, "validation_growth_sign_accuracy": 0.7, "loss": 0.4,
    "power_per_gpu_w": None, "whole_run_energy_per_gpu_j": None, "power_reason": REASON,
    "whole_run_power_reason": REASON,
    "power_source": None,
    "oversubscribed": False,
    "code_is_current": True,
}  # fmt: skip
MANY = [1, 6, 12, 24, 48, 96, 192, 384, 768, 1536, 3072]
MEASURED = ("runtime_s", "load_s", "train_s", "time_per_epoch_s", "accuracy", "loss")
LATE = ("time_per_epoch_s", "accuracy", "loss")  # what a run that failed in training has not; the rest it may have


def made_up(*changes):
    """A table of runs, each RUN with some changes."""
    rows = [{**RUN, **change} for change in changes]
    rows = [row | (dict.fromkeys(LATE) if row["status"] != "ok" else {}) for row in rows]
    return pd.DataFrame(rows).astype(dict.fromkeys([*MEASURED, "power_per_gpu_w", "whole_run_energy_per_gpu_j"], float))


def failed(kind="oom", **changes):
    return {"status": "failed", "failure_kind": kind, **changes}


def any_runs(name, counts=(1, 2, 4), repeats=2):
    """Runs that a figure needs: every value of its filters, batch sizes and batch scalings."""
    filters = load_description(name).runs
    axes = {**filters, "gpus": counts, "repeat": range(1, repeats + 1)}
    axes |= {"batch_scaling": ("linear", "square_root", "cubic_root")} if filters.get("scaling") == ["batch"] else {}
    axes |= {"batch_size": (20, 40)} if filters.get("loader") == ["read_csv"] else {}
    points = [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]
    return made_up(*({**point, "runtime_s": 100 / point["gpus"] + point["repeat"]} for point in points))


def selected(figure, *changes):
    return select_points(load_description(f"icpp2019_{figure}"), made_up(*changes), "test")


def panel(data, title):
    return next(each for each in data.panels if each.title.startswith(title))


def axes_of(data, title):
    return next(axes for axes in draw(data).axes if re.match(rf"\(.\) {title}", axes.get_title()))


def legend(axes):
    return [text.get_text() for text in axes.get_legend().get_texts()]


def crosses(axes):
    return [line for line in axes.lines if line.get_marker() == "x"]


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in load_figures() if load_description(name).kind == "points"])
def test_every_figure_draws(name, tmp_path):
    data = select_points(load_description(name), any_runs(name), "tiny")
    write_figure(draw, data, tmp_path / "f.svg", tmp_path / "f.pdf")
    svg = (tmp_path / "f.svg").read_text()
    assert f">{data.title}</text>" in svg
    benchmark, *others = load_description(name).runs.get("benchmark", [RUN["benchmark"]])
    benchmark = f"{1 + len(others)} different" if others else benchmark
    texts = " ".join(re.findall(r">([^<]*)</text>", svg))  # a heading above one panel has several lines
    assert f"study tiny, machine local, benchmark {benchmark}, dataset candle" in texts
    assert (tmp_path / "f.pdf").read_bytes().startswith(b"%PDF")
    assert sorted(path.name for path in tmp_path.glob("[!.]*")) == ["f.pdf", "f.svg"]
    assert all(axes.get_legend() is None or legend(axes) for axes in draw(data).axes)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "counts"),
    [("figure6", [1]), ("figure6", MANY), ("figure10", MANY), ("figure11_13", [1, 2, 4]), ("figure18", MANY)],
)
def test_no_text_runs_into_another(name, counts):
    name = f"icpp2019_{name}"
    figure = draw(select_points(load_description(name), any_runs(name, counts), "test"))
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    panels = [axes.get_tightbbox(canvas.get_renderer()) for axes in figure.axes]  # with their labels and legends
    assert not overlapping([*panels, figure.texts[0].get_window_extent()])
    assert all(figure.bbox.padded(1).containsx(x) for box in panels for x in box.intervalx)
    assert all(figure.bbox.padded(1).containsy(y) for box in panels for y in box.intervaly)
    for axes in figure.axes:
        below = axes.xaxis.get_tightbbox(canvas.get_renderer()).y0
        assert axes.get_legend() is None or axes.get_legend().get_window_extent().y1 <= below
        for axis in (axes.xaxis, axes.yaxis):
            low, high = axis.get_view_interval()
            ticks = [tick for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
            assert len(ticks) >= 1 or panel_is_empty(axes)
            assert not overlapping([tick.label1.get_window_extent() for tick in ticks])


def overlapping(boxes):
    return any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))


def panel_is_empty(axes):
    return len(axes.lines) == 0


def test_means_and_intervals():
    runs = [{"gpus": 6, "repeat": n, "time_per_epoch_s": value} for n, value in enumerate((10.0, 11.0, 12.0), start=1)]
    data = selected("figure6", {"gpus": 1, "time_per_epoch_s": 9.0}, *runs)
    (line,) = panel(data, "Time per epoch").lines
    assert list(line.x) == [1, 6]
    assert list(line.mean) == [9.0, 11.0]
    assert math.isnan(line.ci95[0])
    assert line.ci95[1] == pytest.approx(4.303 / math.sqrt(3), rel=1e-3)  # Student's t, 2 degrees of freedom
    axes = axes_of(data, "Time per epoch")
    (bars,) = axes.containers
    assert list(bars.lines[0].get_ydata()) == [9.0, 11.0]
    segments = bars.lines[2][0].get_segments()
    assert segments[1][:, 1] == pytest.approx([11 - 2.484, 11 + 2.484], abs=1e-3)
    assert len(segments[0]) == 0 or np.isnan(segments[0][:, 1]).all()


def test_performance_has_total_runtime_tensorflow_and_loading():
    lines = panel(selected("figure6", {}, {"batch_size": 40, "runtime_s": 30.0}), "Performance").lines
    assert {line.label: line.mean[0] for line in lines} == {
        "total runtime, batch size 20": 20.0, "total runtime, batch size 40": 30.0, "TensorFlow, batch size 20": 15.0,
        "TensorFlow, batch size 40": 15.0, "data loading, batch size 20": 3.0, "data loading, batch size 40": 3.0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("value", "measured", "modelled"), [("ratio", 3.0, math.nan), ("change_pct", 200.0, math.nan), ("spread_pct", 0, 0)]
)
def test_measured_and_modelled_power_are_not_compared(value, measured, modelled):
    """Neither the repeats of a point, nor two points."""
    figure = load_description("icpp2019_figure11_13")
    (energy,) = [each for each in figure.panels if each["title"].startswith("Energy")]
    base = {} if value == "spread_pct" else {"relative_to": {"loader": "read_csv"}}
    figure = dataclasses.replace(figure, panels=({**energy, "value": value, **base},))

    def drawn(*sources):
        places = [{"repeat": n, "block": n, "started_wall_ns": n, "session": "s"} for n in (1, 2)]
        rows = [{**place, "whole_run_energy_per_gpu_j": 2.0, "power_source": "measured"} for place in places]
        rows += [{**place, "whole_run_energy_per_gpu_j": 6.0, "loader": "chunked", "power_source": source}
                 for place, source in zip(places, sources, strict=True)]  # fmt: skip
        lines = select_points(figure, made_up(*rows), "test").panels[0].lines
        return [line.mean[0] for line in lines if "chunked" in line.label] or [math.nan]

    assert drawn("measured", "measured") == pytest.approx([measured])
    assert drawn("modelled", "modelled") == pytest.approx([modelled], nan_ok=True)
    assert drawn("measured", "modelled") == pytest.approx([math.nan], nan_ok=True)


def test_traced_runs_other_loaders_and_other_scalings_are_left_out():
    wrong = {"runtime_s": 1000.0, "repeat": 2}
    data = selected("figure6", {}, {"trace": True, **wrong}, {"loader": "npy", **wrong}, {"scaling": "weak", **wrong})
    assert [line.mean[0] for line in panel(data, "Performance").lines] == [20.0, 15.0, 3.0]


def test_different_experiments_are_different_lines():
    other = {"learning_rate_scaling": "none", "accuracy": 0.5}
    lines = panel(selected("figure6", {}, other), "Accuracy").lines
    assert {line.label: line.mean[0] for line in lines} == {
        "batch size 20, learning rate scaling linear": 0.9,
        "batch size 20, learning rate scaling none": 0.5,
    }


def test_a_failed_repeat_is_not_in_the_mean():
    data = selected("figure6", {"load_s": 5.0}, {"load_s": 7.0, "repeat": 2}, failed(repeat=3, load_s=1000.0))
    loading = panel(data, "Performance").lines[2]
    assert (loading.label, loading.mean[0]) == ("data loading, batch size 20", pytest.approx(6.0))
    assert panel(data, "Performance").failed == ()


def test_a_point_whose_repeats_all_failed_is_a_gap_and_an_x_at_the_bottom():
    data = selected("figure6", {}, failed(gpus=2), failed("timeout", gpus=2, repeat=2), {"gpus": 4})
    chosen = panel(data, "Performance")
    assert [(point.series, point.x, point.kinds) for point in chosen.failed] == [(0, 2, ("oom", "timeout"))]
    assert [np.isnan(line.mean).tolist() for line in chosen.lines] == [[False, True, False]] * 3
    axes = axes_of(data, "Performance")
    (mark,) = crosses(axes)
    x, y = axes.transAxes.inverted().transform(mark.get_transform().transform(mark.get_xydata()))[0]
    assert list(mark.get_xdata()) == [2]
    assert x == pytest.approx(0.5)
    assert 0 <= y < 0.1
    assert legend(axes)[3:] == ["failed (oom, timeout)"]


def test_two_series_that_failed_on_as_many_gpus_are_both_seen():
    data = selected("figure6", {}, failed(gpus=2), failed(gpus=2, batch_size=40))
    one, other = crosses(axes_of(data, "Accuracy"))
    assert list(one.get_xdata()) == list(other.get_xdata()) == [2]
    assert one.get_ydata() != other.get_ydata()


def test_table2_beside_its_batch_sizes():
    published = panel(selected("figure6", {}), "Time per epoch").published
    assert [points.label for points in published] == ["paper, Summit: batch size 20", "paper, Summit: batch size 40"]
    assert list(published[0].x) == [1, 6, 12, 24, 48, 96, 192, 384]
    assert list(published[0].values) == [10.3, 10.93, 11.17, 11.41, 11.91, 12.74, 15.65, 21.82]
    assert published[1].values[-1] == 21.75
    assert published[0].series == 0  # the measured line's own marker
    assert published[1].series == 1  # not measured here: one of its own


def test_table6_time_and_accuracy():
    data = selected("figure18", {"scaling": "weak", "epochs": 8})
    assert [points.values[-1] for points in panel(data, "Time per epoch").published] == [33.09, 32.37]
    assert [points.values[1] for points in panel(data, "Accuracy").published] == [0.96, 0.97]


def test_every_gpu_count_has_a_tick_though_not_all_have_labels():
    counts = [2**n for n in range(13)]
    axes = axes_of(selected("figure6", *({"gpus": n} for n in counts)), "Performance")
    labelled = list(axes.get_xticks())
    assert sorted([*labelled, *axes.get_xticks(minor=True)]) == counts
    assert labelled[0] == 1
    assert labelled[-1] == 4096
    assert len(labelled) < 13


def test_value_axes():
    def limits(scale, *values, half=0.0, signed=False):
        axes = Figure().subplots()
        set_value_axis(axes, scale, np.array(values) - half, np.array(values) + half, signed)
        return axes.get_yscale(), axes.get_ylim()

    assert limits("linear", 0.5, 1.0)[1][0] == 0
    assert limits("linear", -0.5, 1.0)[1][0] < -0.5  # R² may be negative
    assert limits("log", 3.0, 400.0) == ("log", (2, 500))
    assert limits("linear", 0.5, 1.0, half=0.7)[1][0] == 0
    assert limits("linear", 0.5, 1.0, half=0.7, signed=True)[1][0] < -0.2, "an interval that includes no change"
    assert limits("linear", 0.5, 1.0, signed=True)[1][0] == 0
    assert limits("log", 3.0, 400.0, half=4.0)[1] == (2, 1000)
    assert limits("log", 0.0, 4.0)[0] == "linear"


def test_what_must_be_known_of_the_runs_is_above_the_panels():
    crowded = {"gpus": 4, "oversubscribed": True, "code_is_current": False, "packages": "tensorflow 2.15"}
    data = selected("figure6", {"packages": "tensorflow 2.15"}, crowded, {"packages": "tensorflow 2.18", "repeat": 2})
    assert data.subtitle == "study test, machine local, benchmark nt3, dataset candle"
    assert len(data.notes) == 3
    assert "4 ranks" in data.notes[0]
    assert data.notes[2] == "some points are means over repeats that are not alike: several versions of the libraries"
    assert all(note in draw(data).get_suptitle() for note in data.notes)


@pytest.mark.slow
def test_the_same_runs_give_the_same_bytes(tmp_path, monkeypatch):
    for folder, size in (("a", 10), ("b", 20)):
        monkeypatch.setitem(matplotlib.rcParams, "font.size", size)  # a user's own style must not matter
        write_figure(
            draw, selected("figure6", {}, failed(gpus=2)), tmp_path / folder / "f.svg", tmp_path / folder / "f.pdf"
        )
    for form in ("svg", "pdf"):
        assert (tmp_path / "a" / f"f.{form}").read_bytes() == (tmp_path / "b" / f"f.{form}").read_bytes()
    assert b"CreationDate" not in (tmp_path / "a" / "f.pdf").read_bytes()


def test_both_files_or_none(tmp_path, monkeypatch):
    save = Figure.savefig

    def fail_with_pdf(figure, path, **options):
        if options["format"] == "pdf":
            raise OSError("disk full")
        save(figure, path, **options)

    monkeypatch.setattr(Figure, "savefig", fail_with_pdf)
    with pytest.raises(OSError, match="disk full"):
        write_figure(draw, selected("figure6", {}), tmp_path / "f.svg", tmp_path / "f.pdf")
    assert list(tmp_path.iterdir()) == []


def test_a_figure_of_the_time_to_a_target_reads_targets():
    figure = load_description("icpp2019_figure6")
    assert not has_targets(figure)
    panels = ({**figure.panels[0], "quantities": {"launch_to_target_s": "to the target"}},)
    assert has_targets(dataclasses.replace(figure, panels=panels))


@pytest.fixture
def run_script(make_recorded, tmp_path, monkeypatch):
    """Run the script for a figure of a study with these runs: ``run_script((run, {"status": "failed"}), ...)``."""

    def run(*runs, name="icpp2019_figure6"):
        for planned, facts in runs:
            make_recorded(planned, **facts)
        study = Study("tiny", "a test", {}, tuple(planned for planned, _ in runs))
        monkeypatch.setattr(expansion, "load_planned_study", {"tiny": study}.__getitem__)
        made = tmp_path / "local" / "studies" / "tiny" / "figures"
        outputs = ["--svg", str(made / "f.svg"), "--pdf", str(made / "f.pdf")]
        monkeypatch.setattr(sys, "argv", ["make_figure.py", "--figure", name, "--study", "tiny", *outputs])
        make_figure(standalone_mode=False)
        return made

    return run


@pytest.mark.slow
def test_the_script(run_script):
    one, two, weak = (expand(**point)[0] for point in ({"gpus": 1}, {"gpus": 2}, {"scaling": "weak"}))
    made = run_script((one, {}), (two, {"status": "failed"}), (weak, {"status": "failed", "kind": "hang"}))
    assert sorted(path.name for path in made.glob("[!.]*")) == ["f.pdf", "f.svg"]
    drawn = (made / "f.svg").read_text()
    assert "failed (oom)" in drawn
    assert "hang" not in drawn, "the figure is of strong scaling"


def test_every_grid_parameter_tells_experiments_apart():
    """One that were missing here would be averaged over in silence."""
    assert set(list_identifying_columns()) == set(PARAMETERS) - {"gpus", "repeat", *list_observing_keys()}
    assert list_observing_keys() == ["trace", "profile", "allreduce_sweep", "emulated_ranks", "measure", "compute"]

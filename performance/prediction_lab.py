"""Test the prediction on real runs of the network laboratory: study `rates`.

Fits the runs on 1 to 4 hosts at each link rate, and predicts 6 and 8 hosts. Prints a table and writes it, with a
figure, to performance/prediction_lab.csv and .svg. Reads the finished study or, where there is none, the measured means
in that table.
"""

from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from study.core.files import write_aside
from study.prediction import settings
from study.prediction.runtime_model import compare_with_measured
from study.prediction.scaling_model import fit_scaling
from study.records.tidy import read_runs
from study.report.figures import style
from study.report.figures.style import set_gpu_axis, set_value_axis

ROOT = Path(__file__).resolve().parents[1]
RUNS = ROOT / "results" / "lab" / "studies" / "rates" / "runs.csv"
OUTPUT = ROOT / "performance" / "prediction_lab.csv"
FITTED_HOSTS = 4
QUANTITIES = ("mean_epoch_s", "runtime_s")


def main() -> None:
    """Compare and write."""
    table = predict(read_means())
    print(table.to_string(index=False, float_format="%.3f"))
    beyond = table[~table["fitted"]]
    for name, rows in beyond.groupby("quantity"):
        error = (rows["error"] ** 2).mean() ** 0.5
        print(f"{name}: RMS error {error:.1%}, {rows['within_interval'].sum()} of {len(rows)} within the 90 % interval")
    with write_aside(OUTPUT) as aside:
        table.to_csv(aside, index=False, float_format="%.4g")
    draw(table[table["quantity"] == "mean_epoch_s"])


def read_means() -> pd.DataFrame:
    """Measured mean of each quantity, a row per link rate, number of hosts and quantity."""
    if not RUNS.exists():
        return pd.read_csv(OUTPUT)[["link_mbit_per_s", "hosts", "quantity", "measured"]]
    selection = settings.select_runs(read_runs(RUNS))
    print(*(f"{number} runs left out: {reason}" for reason, number in selection.left_out.items()), sep="\n")
    observations = settings.summarize_points(selection.used).rename(columns={"ranks": "hosts"})
    labels = ["link_mbit_per_s", "hosts"]
    return observations.melt(labels, list(QUANTITIES), var_name="quantity", value_name="measured")


def predict(means: pd.DataFrame) -> pd.DataFrame:
    """The means beside the prediction of their series: median with its 90 % interval, relative error."""
    parts = []
    for _, rows in means.groupby(["quantity", "link_mbit_per_s"], sort=True):
        hosts, measured = (rows[name].to_numpy(float) for name in ("hosts", "measured"))
        fitted = hosts <= FITTED_HOSTS
        model = fit_scaling(hosts[fitted], measured[fitted], is_fixed=False)
        columns = compare_with_measured(model.predict_interval(hosts), measured)
        parts.append(rows.assign(fitted=fitted, **{name: np.asarray(values) for name, values in columns.items()}))
    table = pd.concat(parts, ignore_index=True)
    return table[["link_mbit_per_s", "hosts", "quantity", "fitted", "measured", *columns]]


def draw(table: pd.DataFrame) -> None:
    """Time per epoch against hosts, one colour per link rate; hollow points were not in the fit."""
    with matplotlib.rc_context(style.RC):
        figure = Figure(figsize=(style.PANEL_WIDTH + 1, 3), layout="constrained")
        axes = figure.subplots()
        for place, (rate, rows) in enumerate(table.groupby("link_mbit_per_s")):
            colour = style.COLOURS[place]
            axes.fill_between(rows["hosts"], rows["predicted_low"], rows["predicted_high"], color=colour, alpha=0.2)
            axes.plot(rows["hosts"], rows["predicted_median"], color=colour, label=f"{rate} Mbit/s, predicted")
            for fitted, face in ((True, colour), (False, "white")):
                points = rows[rows["fitted"] == fitted]
                axes.plot(
                    points["hosts"], points["measured"], linestyle="none", marker=style.MARKERS[place], color=colour,
                    markerfacecolor=face,
                )  # fmt: skip
        set_value_axis(axes, "log", table["predicted_low"].to_numpy(), table["predicted_high"].to_numpy())
        set_gpu_axis(axes, sorted(table["hosts"].astype(int).unique()))
        axes.set_xlabel("hosts of the network laboratory, one rank each")
        axes.set_ylabel("time per epoch (s)")
        axes.set_title("Lines, bands: predicted, 90 % interval. Points: measured; hollow: not in the fit")
        axes.legend(frameon=False)
        with write_aside(OUTPUT.with_suffix(".svg")) as aside:
            figure.savefig(aside, format="svg", metadata={"Date": None})


if __name__ == "__main__":
    main()

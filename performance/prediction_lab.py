"""Test the prediction on real runs of the network laboratory: study `rates`, which must be finished.

Fits the runs on 1 to 4 hosts at 20 and 100 Mbit/s. Predicts 6 and 8 hosts at these rates, and all counts at 50 Mbit/s.
Prints a table and writes it, with a figure, to performance/prediction_lab.csv and .svg.
"""

from pathlib import Path

import matplotlib
import pandas as pd
from matplotlib.figure import Figure

from study.core.files import write_aside
from study.prediction import settings
from study.prediction.model import compared, fit_model, predict
from study.records.tidy import read_runs
from study.report.figures import style
from study.report.figures.style import set_gpu_axis, set_value_axis

ROOT = Path(__file__).resolve().parents[1]
RUNS = ROOT / "results" / "lab" / "studies" / "rates" / "runs.csv"
OUTPUT = ROOT / "performance" / "prediction_lab.csv"
FITTED_HOSTS, FITTED_RATES = 4, (20, 100)
QUANTITIES = ("mean_epoch_s", "runtime_s")


def main() -> None:
    """Compare and write."""
    if not RUNS.exists():
        raise SystemExit(f"error: there is no {RUNS}; run study rates on machine lab, see docs/network-laboratory.md")
    selection = settings.select(read_runs(RUNS))
    print(*(f"{number} runs left out: {reason}" for reason, number in selection.left_out.items()), sep="\n")
    observations = settings.observations(selection.used)
    table = beside(observations)
    print(table.to_string(index=False, float_format="%.3f"))
    beyond = table[~table["fitted"]]
    for name, rows in beyond.groupby("quantity"):
        error = (rows["error"] ** 2).mean() ** 0.5
        print(f"{name}: RMS error {error:.1%}, {rows['within_interval'].sum()} of {len(rows)} within the 90 % interval")
    with write_aside(OUTPUT) as aside:
        table.to_csv(aside, index=False, float_format="%.4g")
    draw(table[table["quantity"] == "mean_epoch_s"])


def beside(observations: pd.DataFrame) -> pd.DataFrame:
    """One row per point and quantity: measured mean, prediction with its 90 % interval, relative error."""
    fitted = (observations["ranks"] <= FITTED_HOSTS) & observations["link_mbit_per_s"].isin(FITTED_RATES)
    found = predict(fit_model(observations[fitted]), observations)
    labels = {"link_mbit_per_s": observations["link_mbit_per_s"], "hosts": observations["ranks"]}
    rows = []
    for name in QUANTITIES:
        measured = observations[name].to_numpy()
        columns = compared(found.interval(name), measured)
        rows.append(pd.DataFrame({**labels, "quantity": name, "fitted": fitted, "measured": measured, **columns}))
    return pd.concat(rows, ignore_index=True)


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

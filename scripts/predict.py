"""Predict time at other rank counts from measured points in a CSV file, and recommend a count for a goal.

POINTS.csv has the columns `ranks` and one of `time_per_step_s`, `time_per_epoch_s`, `runtime_s`, `throughput` (of all
ranks, or with the unit `.../GPU` of one; column `unit`, --unit, or a title such as `throughput (img/s)`). Optional
columns: series, repeat, nodes, batch_size, gradient_mb, load_s, energy_j, power_w, time_std. RANKS:FILE is a log of
torchtitan, nanotron or MLPerf, or an export of W&B or MLflow, whose ranks it names. Starts nothing.
"""

import argparse
import math
import re
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from study.contrib.readers.imports import read_any
from study.core import number_types
from study.core.errors import StudyError, exit_with_message
from study.core.files import write_text, written_aside
from study.core.wording import significant
from study.prediction import goals
from study.prediction.points import WORKS
from study.prediction.series_answer import SeriesAnswer, answer
from study.report.figures import series_drawing
from study.report.tables.allocation import allocation_table

MEANINGS = "fixed (strong scaling), per_rank (weak scaling, as a fixed batch per GPU) or epochs (the papers': divided)"


def main() -> None:
    """Read the command line and do it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    count, rate = number_types.count, number_types.rate
    parser.add_argument("points", nargs="+", metavar="POINTS.csv", help="measured points, or RANKS:FILE")
    parser.add_argument(
        "--work",
        choices=WORKS,
        help="what is fixed: all work (fixed, strong scaling); a rank's, such as its batch (per_rank, weak scaling); "
        "epochs are divided (epochs, the papers')",
    )
    parser.add_argument("--predict", type=counts, default=[], help="counts such as 64,128; by default three doublings")
    parser.add_argument("--ranks-per-node", type=count, help="if the file has no column nodes")
    parser.add_argument("--unit", help="of the throughput: images/s, tokens/s/GPU, ...")
    parser.add_argument("--goal", default="fastest", help="a file name in config/prediction/goals")
    parser.add_argument("--price", type=rate, help="price of a node-hour, in any currency; not the goal's")
    parser.add_argument("--amount", type=rate, default=1.0, help="steps or epochs of the job on the smallest count")
    parser.add_argument("--knee", type=rate, default=0.5, help="least speedup of a doubling, minus 1")
    parser.add_argument("--grid", type=rate, help="g CO2e per kWh of the electricity, for modelled emissions")
    parser.add_argument("--pue", type=rate, default=1.0, help="power usage effectiveness of the centre")
    parser.add_argument("--output", type=Path, help="a CSV file; the answer is written beside it too")
    arguments = parser.parse_args()
    if arguments.work is None:
        parser.error(f"--work is required: {MEANINGS}")
    if arguments.pue < 1:
        parser.error(
            f"argument --pue: {arguments.pue:g} must be at least 1, the electricity that the machine itself takes"
        )
    if arguments.knee > 1:
        parser.error(f"argument --knee: {arguments.knee:g} must be at most 1, a doubling that halves the time")
    goal = goals.load(arguments.goal, arguments.price)
    if arguments.output:
        check_output(arguments.output, arguments.points)
    found = [
        answer(series, arguments.predict, goal, arguments.knee, arguments.amount)
        for series in read_any(arguments.points, arguments.work, arguments.ranks_per_node, arguments.unit)
    ]
    text = markdown(found)
    print(text)
    if arguments.output:
        output = arguments.output
        with written_aside(output) as aside:
            pd.concat([each.predictions for each in found], ignore_index=True).to_csv(aside, index=False)
        write_text(output.with_suffix(".md"), text)
        folder = output.parent / f"{output.stem}_allocation"
        curves = [folder / "curves.svg", folder / "curves.pdf"]
        series_drawing.write(found, [output.with_suffix(".svg"), *curves])
        table = allocation_table(found, goal.price, arguments.amount, arguments.grid, arguments.pue, "curves")
        table.write_to(folder)
        print(f"Predictions, answer and curves: {output}, {output.with_suffix('.md')}, {output.with_suffix('.svg')}")
        if len(found) > series_drawing.MOST_PANELS:
            print(f"The figure has the first {series_drawing.MOST_PANELS} of {len(found)} series")
        print(f"Table for an allocation: {folder}")


def check_output(output: Path, points: Sequence[str]) -> None:
    """Raise `StudyError` for an output that is a folder, is written twice, or is read too."""
    if output.is_dir():
        raise StudyError(f"--output: {output} is a folder; a CSV file is expected")
    if output.suffix in (".md", ".svg"):
        raise StudyError(f"--output: {output} must be a CSV file; the answer is written beside it, as .md and .svg")
    inputs = [Path(text) for name in points for text in (name, name.partition(":")[2]) if text]
    if output.exists() and any(each.exists() and output.samefile(each) for each in inputs):
        raise StudyError(f"--output: {output} is one of the files with points; name another one")


def counts(text: str) -> list[int]:
    """Of an argument of argparse: whole numbers of at least 1, with commas."""
    parts = [part.strip() for part in text.split(",")]
    if not all(re.fullmatch("[0-9]{1,9}", part) and int(part) for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r} must be rank counts such as 64,128,256")
    return sorted({int(part) for part in parts})


def markdown(found: list[SeriesAnswer]) -> str:
    """The answer of each series in sentences, and a table of its predictions."""
    parts = []
    for each in found:
        table = each.predictions.drop(columns="series").map(_cell)
        lines = "\n".join(f"- {' '.join(line.split())}" for line in each.sentences)
        is_predicted = each.predictions["low"].notna().any()
        how = "predicted with a 90 % interval" if is_predicted else "as measured, not predicted"
        what = f"time in s, {how}; from {each.series.quantity}, points {each.series.origin}"
        shown = table.to_markdown(index=False, disable_numparse=True, colalign=["right"] * len(table.columns))
        name = " ".join(each.series.name.split())
        parts.append(f"## {name}\n\n{lines}\n\n{what}\n\n{shown}\n")
    return "\n".join(parts)


def _cell(value: object) -> str:
    """A cell for reading; empty if it is missing."""
    if isinstance(value, float):
        return "" if math.isnan(value) else significant(value, digits=4)
    return str(value)


if __name__ == "__main__":
    exit_with_message(main)

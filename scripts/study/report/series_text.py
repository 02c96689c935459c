"""Predictions for measured series, as Markdown."""

import math
from collections.abc import Iterable

from study.core.wording import format_significant, format_with_multiple
from study.prediction.series_answer import SeriesAnswer


def to_markdown(answers: Iterable[SeriesAnswer]) -> str:
    """The answer for each series in sentences, and a table of its predictions."""
    parts = []
    for answer in answers:
        series = answer.series
        predictions = answer.predictions_in_unit().drop(columns=["series", "unit"], errors="ignore")
        table = predictions.map(_format_throughput if series.is_throughput else _format_cell)
        sentences = "\n".join(f"- {' '.join(line.split())}" for line in answer.sentences)
        is_predicted = answer.predictions["low"].notna().any()
        method = "predicted with a 90 % interval" if is_predicted else "as measured, not predicted"
        quantity = f"throughput in {series.unit}" if series.is_throughput else "time in s"
        origins = f"{series.origin} and imported" if series.imported else series.origin
        legend = f"{quantity}, {method}; from {series.quantity}, points {origins}"
        rows = table.to_markdown(index=False, disable_numparse=True, colalign=["right"] * len(table.columns))
        parts.append(f"## {' '.join(series.name.split())}\n\n{sentences}\n\n{legend}\n\n{rows}\n")
    return "\n".join(parts)


def _format_throughput(value: object) -> str:
    return format_with_multiple(value) if isinstance(value, float) and not math.isnan(value) else _format_cell(value)


def _format_cell(value: object) -> str:
    """A cell for reading; empty if it is missing."""
    if isinstance(value, float):
        return "" if math.isnan(value) else format_significant(value, digits=4)
    return str(value)

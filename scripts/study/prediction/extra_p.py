"""Measured points as text files for Extra-P, which fits performance models of another kind to them.

The format is that of Extra-P 4 (docs/file-formats.md of github.com/extra-p/extrap): one ``DATA`` line per point, with
one value per repeat.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pandas as pd

from study.prediction import settings

METRICS = {"time_s": ("runtime_s", "mean_epoch_s", "load_s", "other_s"), "energy_j": ("energy_per_rank_j",)}


def write_texts(runs: pd.DataFrame) -> Iterator[tuple[str, str]]:
    """A file name and its content for each series of each workload, with the rank count as the parameter.

    runs: the ``used`` of `study.prediction.settings.select_runs`. A quantity that one of the points lacks is left out.
    """
    if runs.empty:
        return
    labels = [*settings.WORKLOAD, *settings.SERIES]
    for number, (values, rows) in enumerate(runs.groupby(labels, sort=True, dropna=False), 1):
        named = dict(zip(labels, values, strict=True))
        description = ", ".join(f"{name} {value}" for name, value in named.items())
        yield (
            f"{number:03d}_{named['benchmark']}_{named['scaling']}.txt",
            "\n".join([f"# measured; {description}", *_format_lines(rows), ""]),
        )


def _format_lines(rows: pd.DataFrame) -> Iterator[str]:
    points = {
        ranks: pd.DataFrame([*map(settings.measure_run, _iterate_runs(group))]) for ranks, group in rows.groupby("gpus")
    }
    yield "PARAMETER ranks"
    yield f"POINTS {' '.join(f'({ranks})' for ranks in points)}"
    for metric, quantities in METRICS.items():
        common_quantities = [
            name for name in quantities if all(measurements[name].notna().any() for measurements in points.values())
        ]
        if common_quantities:
            yield f"METRIC {metric}"
        for name in common_quantities:
            yield f"REGION {name}"
            for measurements in points.values():
                yield f"DATA {' '.join(f'{value:.9g}' for value in measurements[name].dropna())}"


def _iterate_runs(group: pd.DataFrame) -> Iterable[pd.Series]:
    return (run for _, run in group.iterrows())

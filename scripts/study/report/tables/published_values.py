"""The published values of papers beside our points, and how our runs differ from a paper's."""

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pandas as pd

from study.core.csv_files import read_csv
from study.core.paths import CONFIG
from study.experiment.methods import load_method
from study.experiment.parameters import PARAMETERS
from study.records.tidy import QUALITY
from study.report.tables.layout import text

NOT_STATED = "not_stated"


def add_published_columns(
    table: pd.DataFrame,
    file: str,
    keys: list[str],
    measures: list[str],
    differences: Callable[[pd.Series], str | None],
    label: str = "",
    ours: Mapping[str, str] | None = None,
) -> pd.DataFrame:
    """Add ``published_<measure>`` and ``ratio_<measure>`` (ours / published) where ``keys`` match a published row.

    file: of published values, see `read_published`. differences: returns, for a row, how its workload differs from the
    published one, or None; if it differs, the ratio stays empty and ``ratio_reason`` gives the reason. label: inserted
    after ``published_`` or ``ratio_``, if values of several machines are shown together. ours: {published measure: the
    column of ours that was measured alike}, if that is another; the ratio is then named after ours.

    Column `NOT_STATED` has our values of the keys that the paper's method has, but that it does not print.
    """
    beside = read_published(file).set_index(keys)[measures].add_prefix(f"published_{label}")
    table = table.join(beside, on=keys)
    has_published = table[list(beside)].notna().any(axis=1)
    reasons = [
        differences(row) if match else None for match, (_, row) in zip(has_published, table.iterrows(), strict=True)
    ]
    table["ratio_reason"] = pd.Series(reasons, index=table.index, dtype=object).where(
        has_published, "no published value"
    )
    comparable = table["ratio_reason"].isna()
    real = ~table["dataset"].str.startswith("synthetic")
    for measure in measures:
        has_ratio = comparable & real if measure in QUALITY else comparable  # synthetic data differ in difficulty
        column = (ours or {}).get(measure, measure)
        table[f"ratio_{label}{column}"] = (table[column] / table[f"published_{label}{measure}"]).where(has_ratio)
    unstated = [describe_unstated_keys([row], paper_of(file)) for _, row in table.iterrows()]
    table[NOT_STATED] = pd.Series(unstated, index=table.index, dtype=object)
    return table


def add_unmeasured_rows(table: pd.DataFrame, file: str, keys: list[str], measures: list[str]) -> pd.DataFrame:
    """Add a row for each published row that no row of ``table`` matches, so that every published value is shown.

    table: the result of `add_published_columns` with the same arguments.
    """
    paper = read_published(file)
    measured_keys = set(table[keys].itertuples(index=False, name=None))
    absent = paper[[row not in measured_keys for row in paper[keys].itertuples(index=False, name=None)]]
    if absent.empty:
        return table
    beside = absent[measures].add_prefix("published_")
    facts = {"repeats_ok": 0, "repeats_resumed": 0, "repeats_failed": 0, "oversubscribed": False,
            "code_is_current": True, "ratio_reason": "no run of this point"}  # fmt: skip
    rows = pd.concat([absent[keys], beside], axis=1).assign(**facts)
    whole = [name for name in table if pd.api.types.is_integer_dtype(table[name])]
    both = pd.concat([table.astype(dict.fromkeys(whole, "Int64")), rows.reset_index(drop=True)], ignore_index=True)
    return both.astype(dict.fromkeys(whole, "Int64") | {"oversubscribed": bool, "code_is_current": bool})


@functools.cache
def read_published(file: str) -> pd.DataFrame:
    """One of a paper's CSV files of published values; its name begins with the paper: ``<paper>_claims.csv``."""
    return read_csv(CONFIG / "papers" / paper_of(file) / file)


def paper_of(file: str) -> str:
    """The paper of a file of published values."""
    return file.partition("_")[0]


def list_method_differences(row: pd.Series, paper: str) -> dict[str, tuple[Any, Any]]:
    """{words of a grid key: (ours, theirs)} for each key in which a run was not trained in the paper's way."""
    return {
        PARAMETERS[name].words: (row[name], value.list_accepted(row["benchmark"])[0])
        for name, value in load_method(paper).items()
        if not value.fits(row[name], row["benchmark"])
    }


def select_runs_of_method(runs: pd.DataFrame, paper: str) -> pd.DataFrame:
    """The runs that were trained in a paper's way, see `list_method_differences`."""
    if runs.empty:
        return runs
    settings = runs[["benchmark", *load_method(paper)]]
    numbers = settings.groupby(list(settings), dropna=False, sort=False).ngroup()
    first = ~numbers.duplicated()
    of_method = [not list_method_differences(row, paper) for _, row in settings[first].iterrows()]
    return runs[numbers.isin(numbers[first][of_method])]


def describe_unstated_keys(rows: Iterable[pd.Series], paper: str) -> str | None:
    """The values that rows have of the keys that a paper does not state, in words: ``cycle time (ms) 1``; or None."""
    listed = list(rows)
    unstated = [PARAMETERS[name] for name, value in load_method(paper).items() if not value.is_stated]
    keys = [each for each in unstated if all(each.name in row for row in listed)]
    values = {key.words: dict.fromkeys(text(row[key.name]) for row in listed) for key in keys}
    return ", ".join(f"{name} {' or '.join(texts)}" for name, texts in values.items() if texts) or None


def describe_differences(wanted: dict[str, tuple[Any, Any]]) -> str | None:
    """The differences in {what: (ours, theirs)}, in words, or None."""
    different = [
        f"{quantity} {text(ours)} instead of {text(theirs)}"
        for quantity, (ours, theirs) in wanted.items()
        if ours != theirs
    ]
    return ", ".join(different) or None

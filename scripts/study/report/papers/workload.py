"""Differences of runs from those of a paper, as its ``claims.yaml`` declares; if there are any, no ratio is given."""

import functools
from collections.abc import Callable, Collection, Iterable
from typing import Any

import pandas as pd

from study import workloads
from study.report.formulas import Cell
from study.report.papers.declaration import METHOD, NAMES, load_paper
from study.report.papers.published import read_benchmark
from study.report.tables.published_values import describe_differences, list_method_differences


def workload_difference(paper: str, own: Iterable[str] = ()) -> Callable[[pd.Series], str | None]:
    """From a row of a table of points to how their data or training differ from the paper's in words, or None.

    own: keys whose value in the row counts as the paper's, such as the batch size in a table by batch size.
    """
    return functools.partial(_difference, paper, frozenset(own))


def differences(paper: str, rows: pd.DataFrame, own: Iterable[str] = ()) -> str | None:
    """`workload_difference` of rows together, each once; None if there is none."""
    difference = workload_difference(paper, own)
    texts = [difference(row) for _, row in rows.iterrows()]
    return "; or ".join(dict.fromkeys(filter(None, texts))) or None


def _difference(paper: str, own: Collection[str], row: pd.Series) -> str | None:
    if not row["repeats_ok"]:
        return "no repeat succeeded"
    sides: dict[str, tuple[Any, Any]] = {}
    for entry in load_paper(paper).workload:
        if entry == METHOD:
            sides |= list_method_differences(row, paper)
        elif any(row.get(name) == value for name, value in entry.get("unless", {}).items()):
            continue
        elif "always" in entry:
            sides[entry["what"]] = tuple(entry["always"])
        elif "real" in entry:
            if str(row["dataset"]).startswith("synthetic"):
                sides[entry["what"]] = ("synthetic", entry["real"])
        else:
            sides[entry["what"]] = _sides(paper, row, entry, own)
    return describe_differences(sides)


def _sides(paper: str, row: pd.Series, entry: dict[str, Any], own: Collection[str]) -> tuple[Any, Any]:
    """(ours, theirs) of an entry."""
    names = {name: row[name] for name in NAMES if name in row}
    if (key := entry.get("key")) in own and row.get(key):
        theirs = row[key]
    elif isinstance(entry["theirs"], dict):
        theirs = entry["theirs"].get(row["scaling"])
    else:
        theirs = load_paper(paper).published.number(entry["theirs"], **names)
    if isinstance(theirs, Cell):
        theirs = int(theirs) if theirs.is_integer() else float(theirs)
    ours, unit = row[entry["ours"]], entry.get("rounded_to")
    return (theirs if unit and round(ours / unit) * unit == theirs else ours), theirs


def file_difference(row: pd.Series) -> str | None:
    """How the rows and columns of a loaded file differ from the benchmark's file, or None."""
    spec = read_benchmark(row["benchmark"])
    if "shape" not in spec:
        return "the paper does not name the file, and its rows are not known"
    rows, columns = workloads.load_workload(row["benchmark"], spec).expected_shape(row["file"], spec["shape"])
    if columns is not None:
        columns -= len(spec["files"][row["file"]].get("drop", []))
    return describe_differences({"rows": (row["rows"], rows), "columns": (row["columns"], columns)})

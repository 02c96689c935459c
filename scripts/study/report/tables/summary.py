"""Shared by the tables of runs: averages over repeats, counts of failures, published values."""

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pandas as pd

from study.core.csv_files import read_csv
from study.core.paths import CONFIG
from study.core.statistics import summarize
from study.experiment import schemas
from study.experiment.methods import method
from study.experiment.parameters import PARAMETERS
from study.records import comparable, targets
from study.records.names import join_records
from study.records.power import NO_MEAN, has_no_mean, modelled_note
from study.records.tidy import QUALITY
from study.report.tables.layout import ci95_name, text

# Columns that identify a row of a table of runs: the machine, its memory mode and every grid key except the repeat.
IDENTITY = ("machine", "memory_mode", *schemas.separating())
# Columns in which repeats of one point may differ are not included.
POINT = [*IDENTITY, "epochs_per_rank", "batch_size_per_rank"]
WORKLOAD = ["train_samples", "features"]
NOT_STATED = "not_stated"
TOLD = ["repeats_ok", "repeats_resumed", "repeats_failed", "failures", "may_fail", "power_source", "power_reason",
        "oversubscribed", "code_is_current", "repeats_unlike",
        "records"]  # fmt: skip


def points(runs: pd.DataFrame, measures: list[str]) -> pd.DataFrame:
    """One row per point of the grid: mean and 95 % confidence interval of ``measures`` over its successful repeats.

    ``repeats_ok`` and ``repeats_failed`` count the repeats. ``repeats_resumed`` counts successful ones whose times are
    left out because they were resumed from a checkpoint. ``failures`` lists the kinds of failures, ``may_fail`` says
    whether they were expected, ``power_reason`` why power or energy is missing, and ``repeats_unlike`` in what the
    repeats differ that are no repeats of one experiment. A point whose repeats all failed has a row without numbers.
    """
    groups = runs.groupby(POINT, sort=False, dropna=False)
    rows = [_point(dict(zip(POINT, key, strict=True)), group, measures) for key, group in groups]
    if comparable.has_several(runs):  # mostly not, and looking at each point takes long
        for row, (_, group) in zip(rows, groups, strict=True):
            row["repeats_unlike"] = comparable.unlike(group[group["status"] == "ok"])
    table = pd.DataFrame(rows, columns=[*POINT, *WORKLOAD, *_measured(measures), *TOLD])
    # Copied: `astype` leaves an array per column, and each column that a table adds then warns of it.
    return table.astype(dict.fromkeys(WORKLOAD, "Int64")).copy()


def _measured(measures: list[str]) -> list[str]:
    return [column for measure in measures for column in (measure, ci95_name(measure))]


def _point(point: dict[str, Any], group: pd.DataFrame, measures: list[str]) -> dict[str, Any]:
    ok = group[group["status"] == "ok"]
    failed = group[group["status"] != "ok"]
    for name in WORKLOAD:
        point[name] = ok[name].iloc[0] if len(ok) else None
    sources = list(ok["power_source"].dropna().unique())
    for measure in measures:
        sample = summarize(ok[measure].iloc[:0] if has_no_mean(ok, measure) else ok[measure])
        point[measure], point[ci95_name(measure)] = sample.mean, sample.ci95
    point["repeats_ok"], point["repeats_failed"] = len(ok), len(failed)
    point["repeats_resumed"] = int(ok["resumed_after_epoch"].notna().sum())
    point["failures"] = "; ".join(f"{n} x {kind}" for kind, n in failed["failure_kind"].value_counts().items()) or None
    point["may_fail"] = group["may_fail"].iloc[0]
    point["power_source"] = "; ".join(sources) or None
    point["power_reason"] = NO_MEAN if len(sources) > 1 else _only_reason(ok)
    point["oversubscribed"] = bool(group["oversubscribed"].any())
    point["code_is_current"] = bool(group["code_is_current"].all())
    point["records"] = join_records(group["record"])
    return point


def _only_reason(ok: pd.DataFrame) -> str | None:
    if len(ok) == 0:
        return "no repeat succeeded"
    reasons = ok["power_reason"].dropna().unique()
    return "; ".join(reasons) or None


def optional_columns(shown: Iterable[str]) -> tuple[str, ...]:
    """Of ``shown``, the columns that are hidden if they are empty."""
    prefixes = ("published_", "ratio_")
    with_default = [name for name, parameter in PARAMETERS.items() if parameter.has_default]
    optional = (*with_default, "repeats_resumed", "repeats_failed", "failures", "may_fail", "oversubscribed", "pairing",
                NOT_STATED)  # fmt: skip
    return tuple(c for c in shown if c.startswith(prefixes) or c in optional or "one_hz" in c)


def beside_published(
    table: pd.DataFrame,
    file: str,
    keys: list[str],
    measures: list[str],
    differences: Callable[[pd.Series], str | None],
    label: str = "",
    ours: Mapping[str, str] | None = None,
) -> pd.DataFrame:
    """Add ``published_<measure>`` and ``ratio_<measure>`` (ours / published) where ``keys`` match a published row.

    file: of published values, see `published`. differences: returns, for a row, how its workload differs from the
    published one, or None; if it differs, the ratio stays empty and ``ratio_reason`` gives the reason. label: inserted
    after ``published_`` or ``ratio_``, if values of several machines are shown together. ours: {published measure: the
    column of ours that was measured alike}, if that is another; the ratio is then named after ours.

    Column `NOT_STATED` has our values of the keys that the paper's method has, but that it does not print.
    """
    beside = published(file).set_index(keys)[measures].add_prefix(f"published_{label}")
    table = table.join(beside, on=keys)
    known = table[list(beside)].notna().any(axis=1)
    reasons = [differences(row) if match else None for match, (_, row) in zip(known, table.iterrows(), strict=True)]
    table["ratio_reason"] = pd.Series(reasons, index=table.index, dtype=object).where(known, "no published value")
    comparable = table["ratio_reason"].isna()
    real = ~table["dataset"].str.startswith("synthetic")
    for measure in measures:
        meant = comparable & real if measure in QUALITY else comparable  # synthetic data differ in difficulty
        column = (ours or {}).get(measure, measure)
        table[f"ratio_{label}{column}"] = (table[column] / table[f"published_{label}{measure}"]).where(meant)
    table[NOT_STATED] = pd.Series([not_stated([row], paper_of(file)) for _, row in table.iterrows()], dtype=object)
    return table


def with_unmeasured(table: pd.DataFrame, file: str, keys: list[str], measures: list[str]) -> pd.DataFrame:
    """Add a row for each published row that no row of ``table`` matches, so that every published value is shown.

    table: the result of `beside_published` with the same arguments.
    """
    paper = published(file)
    known = set(table[keys].itertuples(index=False, name=None))
    absent = paper[[row not in known for row in paper[keys].itertuples(index=False, name=None)]]
    if absent.empty:
        return table
    beside = absent[measures].add_prefix("published_")
    told = {"repeats_ok": 0, "repeats_resumed": 0, "repeats_failed": 0, "oversubscribed": False,
            "code_is_current": True, "ratio_reason": "no run of this point"}  # fmt: skip
    rows = pd.concat([absent[keys], beside], axis=1).assign(**told)
    whole = [name for name in table if pd.api.types.is_integer_dtype(table[name])]
    both = pd.concat([table.astype(dict.fromkeys(whole, "Int64")), rows.reset_index(drop=True)], ignore_index=True)
    return both.astype(dict.fromkeys(whole, "Int64") | {"oversubscribed": bool, "code_is_current": bool})


def steady(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs, without the time per step of those with one epoch: TensorFlow builds its graph in it."""
    if runs.empty:
        return runs
    return runs.assign(time_per_step_s=runs["time_per_step_s"].where(targets.trained_epochs(runs) > 1))


@functools.cache
def published(file: str) -> pd.DataFrame:
    """One of a paper's CSV files of published values; its name begins with the paper: ``<paper>_claims.csv``."""
    return read_csv(CONFIG / "papers" / paper_of(file) / file)


def paper_of(file: str) -> str:
    """The paper of a file of published values."""
    return file.partition("_")[0]


def declared_differences(row: pd.Series, paper: str) -> dict[str, tuple[Any, Any]]:
    """Input of `difference`: the grid keys in which a run was not trained in the paper's way, as declared."""
    return {
        PARAMETERS[name].words: (row[name], value.accepted(row["benchmark"])[0])
        for name, value in method(paper).items()
        if not value.fits(row[name], row["benchmark"])
    }


def not_stated(rows: Iterable[pd.Series], paper: str) -> str | None:
    """The values that rows have of the keys that a paper does not state, in words: ``cycle time (ms) 1``; or None."""
    told = list(rows)
    unstated = [PARAMETERS[name] for name, value in method(paper).items() if not value.is_stated]
    keys = [each for each in unstated if all(each.name in row for row in told)]
    values = {key.words: dict.fromkeys(text(row[key.name]) for row in told) for key in keys}
    return ", ".join(f"{name} {' or '.join(found)}" for name, found in values.items() if found) or None


def difference(wanted: dict[str, tuple[Any, Any]]) -> str | None:
    """The differences in {what: (ours, theirs)}, in words, or None."""
    different = [
        f"{what} {text(ours)} instead of {text(theirs)}" for what, (ours, theirs) in wanted.items() if ours != theirs
    ]
    return ", ".join(different) or None


def notes(table: pd.DataFrame, what: str) -> list[str]:
    """Remarks below a table: failures, outdated code, and values without a comparison, with the reason."""
    found = []
    if "ratio_reason" in table and not table["ratio_reason"].isna().any() and len(table):
        found.append(f"no ratio to the published {what}: {_joined(table['ratio_reason'])}")
    if "power_reason" in table and table["power_reason"].notna().any():
        found.append(f"missing power or energy: {_joined(table['power_reason'].dropna())}")
    if "power_source" in table:
        found += modelled_note(table["power_source"])
    if "repeats_failed" in table and table["repeats_failed"].sum():
        found.append(f"{table['repeats_failed'].sum()} failed repeats are not in the means")
    if "blocks_unlike" in table and (unlike := list(table["blocks_unlike"].dropna())):
        whys = (each.partition(": ")[2] for text in unlike for each in text.split("; "))
        found.append(f"blocks that are not compared: {_joined(whys)}; see blocks_unlike")
    if "oversubscribed" in table and table["oversubscribed"].any():
        found.append("rows marked oversubscribed had fewer cores than ranks x cores a rank")
    if "code_is_current" in table and not table["code_is_current"].all():
        found.append("some of this was measured by another version of the code; see code_is_current")
    if "repeats_unlike" in table and table["repeats_unlike"].notna().any():
        differences = _joined(table["repeats_unlike"].dropna())
        found.append(f"some rows are means over repeats that are not alike: {differences}; see repeats_unlike")
    return found


def _joined(reasons: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(reasons))

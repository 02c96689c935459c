"""The runs that a paper's claim is of, in arms that differ in nothing but what it compares."""

import dataclasses
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from study.compare import failed_runs
from study.experiment.parameters import PARAMETERS, list_observing_keys
from study.report import formulas
from study.report.papers.declaration import GROWTH, OF_LOADS, Claim, Declared
from study.report.papers.published import read_benchmark, select_rows
from study.report.tables.published_values import select_runs_of_method
from study.report.tables.summary import IDENTITY, WORKLOAD

# What else differs between runs that differ in a key: another network has its own files.
FOLLOWS = {
    "benchmark": ("dataset", "train_samples", "test_samples", "features"),
    "input_sharing": ("preprocessing_ranks",),  # of which each way of sharing has its own number
    "memory_mode": ("machine",),
    "machine": ("memory_mode",),
}
OF_CHECKPOINTS = ("checkpoint_write_s",)  # of runs with checkpoints, which slow the run: all else is of runs without


@dataclass(frozen=True)
class Arms:
    """Runs that differ only in what a claim compares, failed ones too. other: None for a claim of one set of runs."""

    one: pd.DataFrame
    other: pd.DataFrame | None = None

    @property
    def sides(self) -> list[pd.DataFrame]:
        """Both, or the only one."""
        return [self.one] if self.other is None else [self.one, self.other]


@dataclass(frozen=True)
class Candidates:
    """The runs that a claim can be of.

    Args:
        runs: those with the claim's values of the grid keys, successful or failed.
        tried: of these, the failed ones and those with a value of the claim's measure.
        at: these values; of several, either will do.
        paper_runs: all that any claim of the paper, or of its table, can be of.
        other_machines: those that have such runs, which stand in the rows of other claims.
    """

    runs: pd.DataFrame
    tried: pd.DataFrame
    at: Mapping[str, Any]
    paper_runs: pd.DataFrame
    other_machines: tuple[str, ...] = ()


class PaperRuns:
    """The runs of a study that can be of a paper's claims.

    Of a paper with ``columns`` only runs that were trained in the paper's way, with these, and observed ones only
    where a claim says by what. The machines that a paper names fill the rows of their own claims only; runs of any
    other machine stand beside each claim.
    """

    def __init__(self, paper: Declared, runs: pd.DataFrame, loading: pd.DataFrame) -> None:
        self._paper, self._loading = paper, loading
        if paper.columns and len(runs):
            runs = select_runs_of_method(formulas.add_columns(runs, paper.columns), paper.paper)
        self._runs = runs
        self._machines = {claim.machine for claim in paper.claims}
        of_runs = [quantity for quantity in paper.quantities.values() if quantity["form"] != OF_LOADS]
        compared = [quantity.get(side, {}) for quantity in of_runs for side in ("other", "one")]
        self._loaders = tuple(dict.fromkeys(side["loader"] for side in compared if "loader" in side))

    def find_candidates(self, claim: Claim) -> Candidates:
        """The runs that can be of a claim, or the measurements of loading a training file."""
        if claim.form == OF_LOADS:
            wanted = {"benchmark": claim.benchmark, "split": "train", "status": "ok"}
            loads = self._select_machines(claim, select_rows(self._loading, wanted))
            return Candidates(loads, loads, {}, loads)
        paper_runs, at = self._runs, self._add_loaders(claim)
        if paper_runs.empty:
            return Candidates(paper_runs, paper_runs, at, paper_runs)
        writes = paper_runs["checkpoint_epochs"].ne(0)
        usual = paper_runs[writes if claim.measure in OF_CHECKPOINTS else ~writes]
        observing = [name for name in list_observing_keys() if name in usual] if self._paper.columns else []
        unobserved = {name: PARAMETERS[name].default for name in observing}
        wanted = unobserved | _get_usual_keys(claim, self._paper) | at
        ranks = {"gpus": wanted.pop("gpus")} if "gpus" in wanted else {}
        on_any_machine = select_rows(usual, wanted)
        on_any_ranks = self._select_machines(claim, on_any_machine)
        runs = on_any_ranks if claim.spans_rank_counts else select_rows(on_any_ranks, ranks)
        others = sorted({*on_any_machine["machine"]} - {*on_any_ranks["machine"]})
        return Candidates(runs, _select_tried(claim, runs), at, paper_runs, tuple(others))

    def _select_machines(self, claim: Claim, rows: pd.DataFrame) -> pd.DataFrame:
        """The rows of a claim's own machine and of those that the paper does not name; all if it compares machines."""
        if claim.machine is None or "machine" in claim.one or rows.empty:
            return rows
        return rows[rows["machine"].eq(claim.machine) | ~rows["machine"].isin(self._machines)]

    def _add_loaders(self, claim: Claim) -> dict[str, Any]:
        """The keys of a claim; of one that names no loader, with those that the paper compares."""
        either = {"loader": self._loaders} if self._loaders and "loader" not in (*claim.at, *claim.one) else {}
        return {**claim.at, **either}


def _get_usual_keys(claim: Claim, paper: Declared) -> dict[str, Any]:
    """The keys that a claim neither compares nor names: its network, and the usual batch of a paper with quantities."""
    network = {"benchmark": claim.benchmark} if claim.benchmark else {}
    if not paper.quantities:
        return network
    usual = {**network, "batch_scaling": "none", "batch_size": read_benchmark(claim.benchmark or "")["batch_size"]}
    return {name: value for name, value in usual.items() if name not in claim.one}


def _select_tried(claim: Claim, runs: pd.DataFrame) -> pd.DataFrame:
    """The failed runs, and those with a value of the claim's measure."""
    if claim.measure is None:
        return runs
    has_value = runs[claim.measure].notna() if claim.measure in runs else False
    return runs[runs["status"].ne("ok") | has_value]


def split_experiments(claim: Claim, runs: pd.DataFrame) -> list[pd.DataFrame]:
    """The runs by experiment: those of one differ in nothing but the number of ranks and what the claim compares."""
    keys = [name for name in (*IDENTITY, "page_cache") if name in runs and name not in {"gpus", *_find_axes(claim)}]
    return [group for _, group in runs.groupby(keys, sort=False, dropna=False)] if len(runs) else []


def compare_rank_counts(claim: Claim, runs: pd.DataFrame) -> Claim:
    """A claim of growth as one of the claim's rank count and of ``fewest`` ranks, or of the fewest that were run."""
    if claim.form not in GROWTH or runs.empty:
        return claim
    fewest = claim.fewest or failed_runs.keep_proven(runs)["gpus"].min()
    return dataclasses.replace(claim, one={"gpus": claim.at["gpus"]}, other={"gpus": fewest})


def pair_arms(claim: Claim, table: pd.DataFrame) -> Iterator[Arms]:
    """The arms of a claim, of each set of runs that are alike in all else."""
    axes = _find_axes(claim)
    following = [name for name in IDENTITY if name in table and name in axes and name not in claim.one]
    alike = [name for name in (*IDENTITY, *WORKLOAD) if name in table and name not in axes]
    if "step" in (claim.measure or "") and not axes & {"benchmark", "batch_size"}:  # steps of as many samples
        alike += [name for name in ("batch_size_per_rank",) if name in table]
    ones = _group(select_rows(table, claim.one), alike)
    if not claim.one:
        yield from map(Arms, ones.values())
        return
    others = _group(select_rows(table, claim.other), alike)
    for key in (key for key in ones if key in others):
        for sides in _split_datasets(ones[key], others[key]):
            parts = (_group(side, following).values() for side in sides)
            yield from itertools.starmap(Arms, itertools.product(*parts))


def _find_axes(claim: Claim) -> set[str]:
    """The columns in which a claim's two arms may differ."""
    return {name for key in claim.one for name in (key, *FOLLOWS.get(key, ()))}


def _group(rows: pd.DataFrame, columns: list[str]) -> dict[Any, pd.DataFrame]:
    """{values of the columns: rows}, in the order of the rows; NaN is one value."""
    if rows.empty or not columns:
        return {None: rows} if len(rows) else {}
    groups = _fill_workload(rows, columns).groupby(columns, dropna=False, sort=False)
    return {tuple(None if pd.isna(value) else value for value in key): group for key, group in groups}


def _fill_workload(rows: pd.DataFrame, columns: list[str]) -> pd.DataFrame:
    """The rows, in which failed runs have the workload of their point's successful ones, which only these know."""
    unknown = [name for name in columns if name in (*WORKLOAD, "batch_size_per_rank")]
    keys = [name for name in columns if name not in unknown]
    if "status" not in rows or not unknown or not keys or rows["status"].eq("ok").all():
        return rows
    first = rows.groupby(keys, dropna=False)[unknown].transform("first")
    return rows.assign(**{name: rows[name].where(rows["status"] == "ok", first[name]) for name in unknown})


def _split_datasets(one: pd.DataFrame, other: pd.DataFrame) -> Iterator[tuple[pd.DataFrame, pd.DataFrame]]:
    """The two sides by dataset; of two networks with one dataset each, these may differ."""
    if "dataset" not in one or (one["dataset"].nunique() == other["dataset"].nunique() == 1):
        yield one, other
        return
    for dataset in sorted({*one["dataset"]} & {*other["dataset"]}):
        yield one[one["dataset"] == dataset], other[other["dataset"] == dataset]

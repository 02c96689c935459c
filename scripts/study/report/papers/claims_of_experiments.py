"""A paper's claims by experiments: each number from the points of one experiment, over its rank counts.

``quantities`` in its ``claims.yaml`` says how each quantity is computed, see `study.report.papers.quantities`. A claim
names a quantity, and in ``at`` the scaling, and where it has them the rank count, the batch size and the loader.
"""

import math
from typing import Any

import pandas as pd

from study.core.errors import StudyError
from study.core.wording import counted
from study.records.names import join_records
from study.report.papers import formulas
from study.report.papers.declaration import Claim, Declared
from study.report.papers.points import benchmark as specification
from study.report.papers.quantities import QUANTITIES, Case, Found, Quantity, declared_quantity
from study.report.papers.workload import file_difference, workload_difference
from study.report.tables.published_values import NOT_STATED, declared_differences, not_stated
from study.report.tables.summary import IDENTITY, points

# An experiment: points that differ in nothing but the number of ranks and the loader.
EXPERIMENT = [name for name in IDENTITY if name not in ("gpus", "loader")]
OF_A_MACHINE = ("machine", "memory_mode")
LABELS = ["benchmark", "scaling", "batch_scaling", "quantity", "unit", "gpus"]
INTEGERS = ("gpus", "batch_size", "repeats", "repeats_failed")


def recomputed(paper: Declared, runs: pd.DataFrame, loading: pd.DataFrame) -> pd.DataFrame:
    """One row per claim and experiment: the range of its quantity over our numbers of ranks, or what is missing.

    Only points trained in the paper's way and with the claim's batch size count. Points of two experiments (machines,
    datasets, input pipelines, loaders where the claim names none) are never in one row. The paper's machines fill their
    own rows only; runs of any other machine have rows of their own, with that machine in ``machine``.
    """
    study = _Study(paper, runs)
    rows = [
        row
        for claim in paper.claims
        for row in (study.file_rows(claim, loading) if study.quantity(claim).of_files else study.rows(claim))
    ]
    return pd.DataFrame(rows).astype(dict.fromkeys(INTEGERS, "Int64"))


class _Study:
    """The points of our runs that were trained in a paper's way, and the paper's quantities."""

    def __init__(self, paper: Declared, runs: pd.DataFrame) -> None:
        derived = {name: formulas.evaluated(each, runs.__getitem__, {}) for name, each in paper.columns.items()}
        self.paper, self.runs = paper, runs.assign(**derived)
        self.difference = workload_difference(paper.paper)
        self.quantities = {name: declared_quantity(each) for name, each in paper.quantities.items()}
        self.machines = {claim.machine for claim in paper.claims}
        self.loaders = tuple({loader: None for each in self.quantities.values() for loader in each.loaders})
        measures = {measure for claim in paper.claims for measure in self.quantity(claim).measures}
        table = points(self.runs, sorted(measures | {"load_s", "runtime_s"}))
        self.points = table[[not declared_differences(row, paper.paper) for _, row in table.iterrows()]]

    def quantity(self, claim: Claim) -> Quantity:
        """How the claim's quantity is computed; raises `StudyError` for one that there is not."""
        found = self.quantities.get(claim.quantity) or QUANTITIES.get(claim.quantity)
        if found is None:
            known = ", ".join([*self.quantities, *QUANTITIES])
            where = f"config/papers/{self.paper.paper}/claims.yaml: claims"
            raise StudyError(f"{where}: there is no quantity '{claim.quantity}'; expected one of {known}, or a new one")
        return found

    def needed_loaders(self, claim: Claim) -> tuple[str, ...]:
        """The loaders whose runs a claim needs together; empty if runs of either of the paper's loaders will do."""
        return self.quantity(claim).loaders or ((claim.at["loader"],) if "loader" in claim.at else ())

    def rows(self, claim: Claim) -> list[dict[str, Any]]:
        """One row for each experiment that gives a value; one that says what is missing if none does."""
        like = self._of_claim(claim)
        chosen = like[self._fills(claim, like["machine"])]
        loaders, machines = self.needed_loaders(claim), self.quantity(claim).machines
        apart = [name for name in EXPERIMENT if not (machines and name in OF_A_MACHINE)]
        apart += [] if loaders else ["loader"]
        groups = chosen.groupby(apart, sort=False, dropna=False) if len(chosen) else ()
        cases = [Case(claim, group, self.runs) for _, group in groups]
        compute = self.quantity(claim).compute
        found = [(case, compute(case)) for case in cases] or [(Case(claim, chosen, self.runs), Found())]
        with_value = [(case, value) for case, value in found if pd.notna(value.low)]
        if with_value:
            return [
                self._labels(claim, case) | self._numbers(value) | {"missing": value.missing}
                for case, value in with_value
            ]
        elsewhere = sorted({*like["machine"]} - {*chosen["machine"]})
        missing = dict.fromkeys(value.missing or self._missing(claim, case, elsewhere) for case, value in found)
        # Where no loader is named, either would do.
        labels = self._labels(claim, found[0][0]) | {"loader": claim.at.get("loader")}
        return [labels | self._numbers(found[0][1]) | {"missing": "; ".join(missing)}]

    def file_rows(self, claim: Claim, loading: pd.DataFrame) -> list[dict[str, Any]]:
        """One row for each measurement of the training file: the median of the repeats' ratios base / optimised."""
        base, optimized = self.quantity(claim).loaders
        labels = self._labels(claim, Case(claim, pd.DataFrame(), pd.DataFrame()))
        missing = f"a loading measurement of {claim.benchmark} with {base} and {optimized}"
        if loading.empty:
            return [{**labels, **self._numbers(Found()), "missing": missing}]
        like = loading[(loading["benchmark"] == claim.benchmark) & (loading["split"] == "train")]
        good = like["loader"].isin([base, optimized]) & (like["status"] == "ok")
        used = like[good & self._fills(claim, like["machine"])]
        found = []
        for (machine, dataset, cache), loads in used.groupby(["machine", "dataset", "page_cache"], sort=False):
            times = loads.pivot(index="repeat", columns="loader", values="load_s").reindex(columns=[base, optimized])
            ratios = (times[base] / times[optimized]).dropna()
            if len(ratios):
                origin = {"machine": machine, "dataset": dataset, "page_cache": cache, "repeats": len(ratios)}
                found.append({**labels, **self._numbers(Found(ratios.median(), ratios.median())), **origin,
                              "code_is_current": bool(loads["code_is_current"].all()), "missing": None,
                              "workload_difference": file_difference(loads.iloc[0]),
                              "records": join_records(loads["record"])})  # fmt: skip
        return found or [{**labels, **self._numbers(Found()), "missing": missing}]

    def _of_claim(self, claim: Claim) -> pd.DataFrame:
        """The points that a claim is about, on any number of ranks of any machine."""
        table, benchmark = self.points, claim.benchmark or ""
        batch_size = claim.at.get("batch_size") or specification(benchmark)["batch_size"]
        wanted = {"benchmark": benchmark, "scaling": claim.at["scaling"], "batch_scaling": _batch_scaling(claim)}
        same = (table[list(wanted)] == pd.Series(wanted)).all(axis=1) & (table["batch_size"] == batch_size)
        return table[same & table["loader"].isin(self.needed_loaders(claim) or self.loaders)]

    def _fills(self, claim: Claim, machine: pd.Series) -> pd.Series:
        """Whether points of these machines may stand in a claim's rows: the claim's own, or one the paper lacks."""
        if machines := self.quantity(claim).machines:
            return machine.isin(machines)
        return machine.eq(claim.machine) | ~machine.isin(self.machines)

    def _labels(self, claim: Claim, case: Case) -> dict[str, Any]:
        """What a row is about: the claim's labels, and those of the experiment where there is one."""
        experiment = case.points.iloc[0] if len(case.points) else pd.Series(dtype=object)
        machines, loader = self.quantity(claim).machines, claim.at.get("loader")
        either = None if self.needed_loaders(claim) else experiment.get("loader")
        value, low, high = self.paper.published.range(claim.published, benchmark=claim.benchmark)
        alone = math.isnan(low) and math.isnan(high)
        return {
            **{name: experiment.get(name) for name in EXPERIMENT},
            "benchmark": claim.benchmark,
            "scaling": claim.at.get("scaling"),
            "batch_scaling": _batch_scaling(claim),
            "quantity": claim.quantity,
            "unit": claim.unit,
            "gpus": claim.at.get("gpus"),
            **({"machine": " / ".join(machines)} if machines else {}),
            "batch_size": claim.at.get("batch_size"),
            "loader": loader or either,
            "published_machine": claim.machine,
            "published_low": value if alone else low,
            "published_high": value if alone else high,
            "paper_section": claim.section,
            "note": claim.note,
        }

    def _numbers(self, found: Found) -> dict[str, Any]:
        """A value, the GPU counts behind it, whether its workload is the paper's and its code is current."""
        used = pd.DataFrame() if found.points is None else found.points
        good = used[used["repeats_ok"] > 0] if len(used) else used
        difference = list(good.apply(self.difference, axis=1).dropna().unique()) if len(good) else []
        repeats = found.blocks if found.blocks is not None or used.empty else int(used["repeats_ok"].min())
        return {
            "low": found.low,
            "high": found.high,
            "interval_low": found.interval_low,
            "interval_high": found.interval_high,
            "load_share_pct": found.load_share_pct,
            "pairing": found.pairing,
            "blocks_alike": found.alike if pd.notna(found.interval_low) else None,
            "repeats": repeats,
            "repeats_failed": int(used["repeats_failed"].sum()) if len(used) else None,
            NOT_STATED: not_stated((row for _, row in good.iterrows()), self.paper.paper),
            "measured_gpus": ", ".join(map(str, sorted(used["gpus"].unique()))) if len(used) else None,
            "workload_difference": f"{used['benchmark'].iloc[0]}: {'; or '.join(difference)}" if difference else None,
            "oversubscribed": bool(used["oversubscribed"].any()) if len(used) else False,
            "code_is_current": bool(used["code_is_current"].all()) if len(used) else True,
            "records": join_records(used["records"]) if len(used) else None,
        }

    def _missing(self, claim: Claim, case: Case, elsewhere: list[str]) -> str:
        """The runs, or the measurement in existing runs, that a claim would need.

        elsewhere: machines that have such runs, but do not fill the claim's row.
        """
        gpus, needed = claim.at.get("gpus"), self.needed_loaders(claim)
        runs, of = _runs_of(claim), self._machines_of(claim, case, elsewhere)
        where = f" on {counted(gpus, 'rank')}" if gpus else ""
        there = case.points[case.points["gpus"] == gpus] if gpus else case.points
        absent = [loader for loader in needed or self.loaders if loader not in set(there["loader"])]
        if absent and (needed or there.empty):
            return f"{runs}, with {(' and ' if needed else ' or ').join(absent)}{where}{of}"
        if self.quantity(claim).machines:
            return f"{runs}, with {claim.at.get('loader')}{of}"
        good = there[there["repeats_ok"] > 0]
        if good.empty:
            return f"good runs: {'; '.join(there['failures'].dropna().unique())}"
        energy = self.quantity(claim).column(claim)
        if energy and energy.startswith("energy_") and good[energy].isna().any():
            reasons = good["power_reason"].dropna().unique()
            return f"energy of these runs: {'; '.join(reasons) or 'the sensor has no power to read once a second'}"
        if len(needed) > 1:
            return f"runs with both loaders on the same data, epochs and ranks{where}"
        return f"runs on more ranks, or the measure in these{where}"

    def _machines_of(self, claim: Claim, case: Case, elsewhere: list[str]) -> str:
        """On which machines the missing runs would be, and which are here."""
        if both := self.quantity(claim).machines:
            here = [name for name in both if name in set(case.points["machine"])]
            told = f"; here: {' and '.join(here)}" if here else ""
            return f" on {' and '.join(both)}, on equal numbers of ranks{told}"
        return f" on {claim.machine}; those here are of {' and '.join(elsewhere)}" if elsewhere else ""


def _batch_scaling(claim: Claim) -> str:
    return str(claim.at.get("batch_scaling", "none"))


def _runs_of(claim: Claim) -> str:
    """The runs of a claim in words."""
    scaling, batch_size = _batch_scaling(claim), claim.at.get("batch_size")
    batch = "" if scaling == "none" else f", batch_scaling: {scaling}"
    batch += f", batch_size: {batch_size}" if batch_size else ""
    return f"runs of {claim.benchmark}, {claim.at['scaling']} scaling{batch}"

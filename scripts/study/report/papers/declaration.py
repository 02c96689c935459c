"""What a paper declares in ``config/papers/PAPER/claims.yaml``: its claims, their table, and its workload.

The keys are those of config/schemas/claims.schema.yaml. Papers are found by their files.
"""

import copy
import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from study.core import validation
from study.core.errors import StudyError
from study.core.paths import CONFIG
from study.report import formulas
from study.report.papers.published import FUNCTIONS, OF_FILES, Published

FILE = "claims.yaml"
# {formula of a claim: whether it compares two sets of runs}; see `study.report.papers.claim_estimates`.
FORMS = {
    "value": False, "value_pct": False, "spread_pct": False,
    "ratio": True, "change_pct": True, "loss_pct": True, "efficiency": True, "difference": True, "difference_pct": True,
}  # fmt: skip
GROWTH = ("growth", "growth_pct")  # forms of quantities, of two numbers of ranks
OF_LOADS = "speedup_of_loads"  # a form of quantities, of loading measurements instead of runs
NAMES = frozenset({"benchmark", "scaling", "batch_size"})  # that a formula may use besides the paper's numbers
METHOD = "grid keys"  # the entry of ``workload`` that stands for those of method.yaml


@dataclass(frozen=True)
class Claim:
    """A number of a paper, and how runs give it.

    Args:
        quantity, unit, section, stated, contradiction: what it is, and what the paper says of it, for the table.
        follows_from, not_published, not_compared: likewise; see the schema.
        benchmark: the network; None for a number of any or of no network.
        published: the formula of the paper's number; None if it has none.
        machine: on which the paper measured it, and note: a remark; of claims by experiments.
        form, measure, one, other: see `study.report.papers.claim_estimates`; None or empty if no run gives it.
        at: the grid keys of the runs.
        share: the column whose share in the runtime of the other runs is shown.
        fewest: the number of ranks to which growth is compared; None for the fewest that were run.
        failure: the kind of failures that are counted; None for any.
        has_own_form: whether its number is that of a function of the paper's module, named after the quantity.
    """

    quantity: str
    section: str
    benchmark: str | None = None
    published: str | None = None
    form: str | None = None
    measure: str | None = None
    one: Mapping[str, Any] = field(default_factory=dict)
    other: Mapping[str, Any] = field(default_factory=dict)
    at: Mapping[str, Any] = field(default_factory=dict)
    unit: str | None = None
    stated: str | float | None = None
    follows_from: str | None = None
    not_published: str | None = None
    contradiction: str | None = None
    not_compared: str | None = None
    machine: str | None = None
    note: str | None = None
    share: str | None = None
    fewest: int | None = None
    failure: str | None = None
    has_own_form: bool = False

    @property
    def spans_rank_counts(self) -> bool:
        """Whether its number is of runs on several numbers of ranks, not of those on the one that it names."""
        return self.has_own_form or self.form in GROWTH


@dataclass(frozen=True)
class Declared:
    """The content of a paper's ``claims.yaml``.

    Args:
        table: the texts of the claims' table, and which runs it is made from.
        workload: how runs may differ from the paper's, see `study.report.papers.workload`.
        published: the paper's numbers.
        claims: in the order of the file.
        columns: derived columns of runs, {name: formula over others}; only runs of the paper's way then count.
        quantities: how they are computed, as in the file; empty if claims have their own forms.
    """

    paper: str
    table: Mapping[str, Any]
    workload: tuple[Any, ...]
    published: Published
    claims: tuple[Claim, ...]
    columns: Mapping[str, str] = field(default_factory=dict)
    quantities: Mapping[str, Any] = field(default_factory=dict)


def papers() -> list[str]:
    """The papers that declare claims, sorted."""
    return sorted(path.parent.name for path in CONFIG.glob(f"papers/*/{FILE}"))


@functools.cache
def load_paper(paper: str) -> Declared:
    """The content of a paper's claims.yaml; raises `StudyError` that names the file and the key."""
    path = CONFIG / "papers" / paper / FILE
    content = validation.load_valid_yaml(path, schema())
    _check_formulas(content, validation.shorten_path(path))
    claims = tuple(claim for entry in content["claims"] for claim in _claims(entry, content))
    numbers = Published(paper, content.get("numbers", {}))
    return Declared(
        paper, content["table"], tuple(content.get("workload", ())), numbers, claims,
        content.get("columns", {}), content.get("quantities", {}),
    )  # fmt: skip


@functools.cache
def schema() -> dict[str, Any]:
    """The schema of a paper's ``claims.yaml``, with the forms."""
    content = copy.deepcopy(validation.read_schema("claims"))
    runs = content["properties"]["claims"]["items"]["properties"]["runs"]
    runs["properties"]["form"]["enum"] = list(FORMS)
    return content


def _claims(entry: dict[str, Any], content: dict[str, Any]) -> Iterator[Claim]:
    """The claims of an entry of the file: one of each benchmark."""
    benchmarks = entry.get("benchmark")
    of_runs = _resolve_runs(entry, content)
    for benchmark in benchmarks if isinstance(benchmarks, list) else [benchmarks]:
        yield Claim(**{name: value for name, value in entry.items() if name not in ("benchmark", "runs")},
                    benchmark=benchmark, **of_runs)  # fmt: skip


def _resolve_runs(entry: dict[str, Any], content: dict[str, Any]) -> dict[str, Any]:
    """How runs give the number of an entry: by its own ``runs``, or by its quantity as the file or a module has it."""
    quantities = content.get("quantities")
    if quantities is None:
        return dict(entry.get("runs", {}))
    if entry["quantity"] not in quantities:
        return {"form": entry["quantity"], "has_own_form": True}
    of_runs = quantities[entry["quantity"]]
    measure = of_runs.get("measure")
    return {**of_runs, "measure": measure[entry["machine"]] if isinstance(measure, Mapping) else measure}


def _check_formulas(content: dict[str, Any], file: str) -> None:
    """Raise `StudyError` for a formula that is none or names what there is not, or for sides that a form has not."""
    names, functions = {*content.get("numbers", {}), *NAMES}, {*OF_FILES, *FUNCTIONS}
    for key, formula in _formulas(content):
        formulas.check_formula(f"{file}: {key}", formula, functions, names)
    for name, formula in content.get("columns", {}).items():
        formulas.check_formula(f"{file}: columns.{name}", formula, formulas.ARITHMETIC)
    for number, entry in enumerate(content["claims"]):
        runs = entry.get("runs")
        if content.get("quantities") and (runs or "machine" not in entry):
            message = "expected machine and at, and no runs, since the file has quantities"
            raise StudyError(f"{file}: claims[{number}] ({entry['quantity']}): {message}")
        if runs and FORMS[runs["form"]] != ("one" in runs):
            needs = "needs one and other, by which two sets of runs differ"
            message = needs if FORMS[runs["form"]] else "is of one set of runs: remove one and other"
            raise StudyError(f"{file}: claims[{number}].runs ({entry['quantity']}): form {runs['form']} {message}")


def _formulas(content: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """(key, formula) of all in a file."""
    for name, formula in content.get("numbers", {}).items():
        yield f"numbers.{name}", formula
    for number, each in enumerate(content.get("workload", ())):
        if each != METHOD and isinstance(each.get("theirs"), str):
            yield f"workload[{number}].theirs", each["theirs"]
    for number, entry in enumerate(content["claims"]):
        if "published" in entry:
            yield f"claims[{number}].published ({entry['quantity']})", entry["published"]

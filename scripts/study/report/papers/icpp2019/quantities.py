"""What the paper's claims are about: each quantity is one registered function from our runs to a range.

All points of a `Case` are one experiment: they differ in the number of ranks and the loader only, so no value mixes
datasets, input pipelines or learning rates. A quantity that compares machines has the points of both.
"""

import dataclasses
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pandas as pd

from study.core.registry import Registry
from study.records import pairing
from study.records.names import runs_of
from study.report.papers.icpp2019.tables import BASE, OPTIMIZED
from study.report.tables.layout import ci95_name

FALL = 0.05  # accuracy has fallen where it is this far below the best of the experiment
# Derived columns of a run that quantities need as means over repeats.
DERIVED: dict[str, Callable[[pd.DataFrame], pd.Series]] = {
    "load_minus_train_s": lambda runs: runs["load_s"] - runs["train_s"],
    "load_to_train_ratio": lambda runs: runs["load_s"] / runs["train_s"],
    "rank_batch_size": lambda runs: runs["batch_size_per_rank"],
}
FILE_SPEEDUP = "file_load_speedup"
GROWTH_SIGN = "validation_growth_sign_accuracy"  # what the paper's accuracy of P1B3 is compared with
VALUES = ("accuracy", GROWTH_SIGN, "broadcast_s", "load_s", "load_to_train_ratio", "time_per_epoch_s",
          "steps_per_epoch", "rank_batch_size")  # fmt: skip
MEASURES = (
    "runtime_s",
    "power_per_gpu_w",
    "power_per_gpu_one_hz_w",
    "energy_per_gpu_j",
    "energy_per_gpu_one_hz_j",
    "load_minus_train_s",
    "loss",
    *VALUES,
)


@dataclass(frozen=True)
class Case:
    """A claim and the runs for it.

    Args:
        claim: a row of ``icpp2019_claims.csv``.
        points: rows of one experiment, one per number of ranks and loader, with `MEASURES` (see `summary.points`).
        runs: the tidy table of runs behind them.
    """

    claim: pd.Series
    points: pd.DataFrame
    runs: pd.DataFrame

    def of(self, measure: str, loader: str | None = None) -> pd.DataFrame:
        """The points with a value of ``measure``, by number of ranks; of one loader, or of the claim's."""
        loader = loader or self.claim["loader"]
        wanted = self.points[measure].notna() & (self.points["loader"].eq(loader) if loader else True)
        return self.points[wanted].sort_values("gpus")

    def asked(self, measure: str, loader: str | None = None) -> pd.DataFrame:
        """Of these, the points on the claim's number of ranks, if it names one."""
        known = self.of(measure, loader)
        return known[known["gpus"] == self.claim["gpus"]] if self.claim["gpus"] else known


@dataclass(frozen=True)
class Found:
    """The value of a quantity.

    Args:
        low, high: smallest and largest value over the numbers of ranks; NaN if it cannot be computed.
        interval_low, interval_high: the ends of the 95 % intervals of these values; NaN with one repeat or unpaired.
        points: those that were used.
        blocks: the fewest repeats behind one value, if that is not the points' number of repeats.
        pairing: whether two arms were run interleaved, for ratios.
        load_share_pct: the largest share of loading in the base runs, %.
        missing: why there is no value; None for the usual reason, that runs are missing.
    """

    low: float = math.nan
    high: float = math.nan
    interval_low: float = math.nan
    interval_high: float = math.nan
    points: pd.DataFrame | None = None
    blocks: int | None = None
    pairing: str | None = None
    load_share_pct: float = math.nan
    missing: str | None = None


@dataclass(frozen=True)
class Quantity:
    """How a quantity is computed.

    Args:
        compute: from a `Case` to the value.
        loaders: those whose runs it compares; empty for one loader at a time.
        machines: likewise.
    """

    compute: Callable[[Case], Found]
    loaders: tuple[str, ...] = ()
    machines: tuple[str, ...] = ()


QUANTITIES: Registry[Quantity] = Registry("quantity of a claim")


def quantity(
    name: str, loaders: tuple[str, ...] = (), machines: tuple[str, ...] = ()
) -> Callable[[Callable[[Case], Found]], Callable[[Case], Found]]:
    """Register the decorated function as the `Quantity` of claims with this ``quantity``."""

    def register(compute: Callable[[Case], Found]) -> Callable[[Case], Found]:
        QUANTITIES.add(name, Quantity(compute, loaders, machines))
        return compute

    return register


def _both_loaders(case: Case, measure: str, of: Callable[[float], float]) -> Found:
    """``of`` the ratio optimised / base at each number of ranks that has both loaders, paired within blocks.

    of: monotonic. Repeats that only one loader has are left out.
    """
    base, optimized = (case.asked(measure, loader).set_index("gpus") for loader in (BASE, OPTIMIZED))
    ratios = {
        gpus: pairing.between(
            case.runs, optimized.loc[gpus, "records"], base.loc[gpus, "records"], measure, judged=True
        )
        for gpus in base.index.intersection(optimized.index)
    }
    ratios = {gpus: ratio for gpus, ratio in ratios.items() if ratio.blocks}
    if not ratios:
        return Found()
    values = [of(ratio.ratio) for ratio in ratios.values()]
    ends = [of(end) for ratio in ratios.values() for end in (ratio.low, ratio.high)]
    used = pd.concat([base.loc[list(ratios)], optimized.loc[list(ratios)]]).reset_index()
    together = all(ratio.pairing == pairing.PAIRED for ratio in ratios.values())
    return Found(
        *_range(values),
        *_range(ends),
        used,
        min(ratio.blocks for ratio in ratios.values()),
        pairing.PAIRED if together else pairing.UNPAIRED,
    )


def _range(values: Iterable[float]) -> tuple[float, float]:
    """Smallest and largest value; NaN if there is none or one of them is not known."""
    known = list(values)
    return (min(known), max(known)) if known and not any(map(math.isnan, known)) else (math.nan, math.nan)


def _reduction(case: Case, measure: str) -> Found:
    """100 x (base - optimised) / base (icpp2019, sections 5 and 6)."""
    return _both_loaders(case, measure, lambda ratio: 100 * (1 - ratio))


@quantity("runtime_reduction", (BASE, OPTIMIZED))
def runtime_reduction(case: Case) -> Found:
    """Of the whole run, %."""
    found = _reduction(case, "runtime_s")
    if found.points is None:
        return found
    base = found.points[found.points["loader"] == BASE]
    return dataclasses.replace(found, load_share_pct=float((100 * base["load_s"] / base["runtime_s"]).max()))


@quantity("energy_reduction", (BASE, OPTIMIZED))
def energy_reduction(case: Case) -> Found:
    """Of the energy per GPU, %, without start-up: as in the paper, from one reading a second on Summit (section 3)."""
    return _reduction(case, energy_of(case.claim))


def energy_of(claim: pd.Series) -> str:
    """The column of energy that was measured as on the claim's machine: nvidia-smi at 1 Hz on Summit (section 3)."""
    return "energy_per_gpu_one_hz_j" if claim["machine"] == "summit" else "energy_per_gpu_j"


@quantity("power_increase", (BASE, OPTIMIZED))
def power_increase(case: Case) -> Found:
    """Of the mean power per GPU, %: 100 x (optimised - base) / base (Table 5), measured as the energy is."""
    measure = energy_of(case.claim).replace("energy", "power").removesuffix("_j") + "_w"
    return _both_loaders(case, measure, lambda ratio: 100 * (ratio - 1))


@quantity("broadcast_reduction", (BASE, OPTIMIZED))
def broadcast_reduction(case: Case) -> Found:
    """Of the slowest rank's broadcast, %."""
    return _reduction(case, "broadcast_s")


@quantity("load_speedup", (BASE, OPTIMIZED))
def load_speedup(case: Case) -> Found:
    """Loading time within a run, of the slowest rank: base / optimised."""
    return _both_loaders(case, "load_s", lambda ratio: 1 / ratio)


@quantity(FILE_SPEEDUP, (BASE, OPTIMIZED))
def file_load_speedup(case: Case) -> Found:
    """Loading time of a training file alone: base / optimised. The claims compute it from loading measurements."""
    return Found()


@quantity("load_theta_over_summit", machines=("theta", "summit"))
def load_theta_over_summit(case: Case) -> Found:
    """Loading time within a run on Theta / that on Summit, at each number of ranks that both have.

    Runs of two machines are never interleaved, so there is no interval.
    """
    known = case.of("load_s")
    theta, summit = (known[known["machine"] == name].set_index("gpus") for name in ("theta", "summit"))
    common = theta.index.intersection(summit.index)
    used = pd.concat([theta.loc[common], summit.loc[common]]).reset_index()
    if used.empty:
        return Found()
    return Found(*_range(theta.loc[common, "load_s"] / summit.loc[common, "load_s"]), points=used,
                 pairing=pairing.UNPAIRED)  # fmt: skip


def _value(measure: str) -> Callable[[Case], Found]:
    def compute(case: Case) -> Found:
        known = case.asked(measure)
        if known.empty:
            return Found()
        half = known[ci95_name(measure)]
        ends = _range([*(known[measure] - half), *(known[measure] + half)])
        return Found(*_range(known[measure]), *ends, known)

    return compute


for _measure in VALUES:
    quantity(_measure)(_value(_measure))


def stays_from(known: pd.DataFrame, excess: pd.Series) -> float:
    """The smallest number of ranks from which on ``excess`` is positive, at it and all larger ones; NaN if none.

    known: points in ascending order of ``gpus``.
    """
    below = known.loc[~(excess > 0), "gpus"]
    above = known["gpus"] if below.empty else known.loc[known["gpus"] > below.max(), "gpus"]
    return float(above.min()) if len(above) else math.nan


def _threshold(known: pd.DataFrame, excess: pd.Series, half: pd.Series, otherwise: str) -> Found:
    """Where an excess becomes positive for good: by its means, and by the ends of its 95 % intervals (half-width).

    otherwise: what to say if it does not.
    """
    at = stays_from(known, excess)
    possible, certain = (math.nan if half.isna().any() else stays_from(known, excess + sign * half) for sign in (1, -1))
    return Found(at, at, possible, certain, known, missing=otherwise if math.isnan(at) else None)


@quantity("loading_dominates_from")
def loading_dominates_from(case: Case) -> Found:
    """Number of ranks from which on loading takes longer than training: load_s > train_s (docs/method.md)."""
    known = case.of("load_minus_train_s")
    if known.empty:
        return Found()
    largest = f"at most {known['load_to_train_ratio'].max():.0%} of train_s on {_listed(known)} ranks"
    otherwise = f"loading does not dominate in these runs: {largest}"
    return _threshold(known, known["load_minus_train_s"], known[ci95_name("load_minus_train_s")], otherwise)


@quantity("accuracy_falls_from")
def accuracy_falls_from(case: Case) -> Found:
    """Number of ranks from which on the training accuracy is more than `FALL` below the experiment's best."""
    known = case.of("accuracy")
    if known.empty:
        return Found()
    fall = known["accuracy"].max() - FALL - known["accuracy"]
    otherwise = f"the accuracy does not fall in these runs, on {_listed(known)} ranks"
    return _threshold(known, fall, known[ci95_name("accuracy")], otherwise)


@quantity("epochs_per_rank_needed")
def epochs_per_rank_needed(case: Case) -> Found:
    """Epochs of a rank on the largest number of ranks below `accuracy_falls_from`."""
    falls = accuracy_falls_from(case)
    if falls.points is None or math.isnan(falls.low):
        return falls
    before = falls.points[falls.points["gpus"] < falls.low].iloc[-1]
    return Found(before["epochs_per_rank"], before["epochs_per_rank"], points=falls.points)


@quantity("accuracy_gain")
def accuracy_gain(case: Case) -> Found:
    """Best accuracy on the claim's number of ranks or more, less the best on fewer.

    The interval is that of both means; there is none where one of them was chosen as the best of several.
    """
    accuracy = GROWTH_SIGN if case.claim["benchmark"] == "p1b3" else "accuracy"
    known = case.of(accuracy)
    many = known["gpus"] >= case.claim["gpus"]
    if not many.any() or many.all():
        return Found()
    more, fewer = (known.loc[part[accuracy].idxmax()] for part in (known[many], known[~many]))
    gain = more[accuracy] - fewer[accuracy]
    was_chosen = many.sum() > 1 or (~many).sum() > 1
    half = math.nan if was_chosen else math.hypot(more[ci95_name(accuracy)], fewer[ci95_name(accuracy)])
    return Found(gain, gain, gain - half, gain + half, known)


@quantity("time_per_epoch_growth")
def time_per_epoch_growth(case: Case) -> Found:
    """Time per epoch on the claim's number of ranks / that on one rank, paired within blocks."""
    return _growth(case, "time_per_epoch_s", 1, lambda ratio: ratio)


@quantity("loss_growth_pct")
def loss_growth_pct(case: Case) -> Found:
    """Training loss on the claim's number of ranks / that on the fewest ranks, less 1, %."""
    known = case.of("loss")
    fewest = known["gpus"].min() if len(known) else 1
    return _growth(case, "loss", fewest, lambda ratio: 100 * (ratio - 1))


def _growth(case: Case, measure: str, fewest: int, of: Callable[[float], float]) -> Found:
    """``of`` the ratio of a measure on the claim's number of ranks to that on the fewest, paired within blocks."""
    known = case.of(measure)
    ends = [known[known["gpus"] == gpus] for gpus in (case.claim["gpus"], fewest)]
    if any(end.empty for end in ends) or case.claim["gpus"] == fewest:
        return Found()
    many, one = (end.iloc[0] for end in ends)
    ratio = pairing.between(case.runs, many["records"], one["records"], measure)
    value = of(ratio.ratio)
    return Found(value, value, of(ratio.low), of(ratio.high), pd.concat(ends), ratio.blocks, ratio.pairing)


def _share_of_failures(case: Case, kind: str | None) -> Found:
    """100 x failed / all repeats of a point, %; of failures of one kind, or of any."""
    chosen = case.points[case.points["loader"] == case.claim["loader"]]
    chosen = chosen[chosen["gpus"] == case.claim["gpus"]] if case.claim["gpus"] else chosen
    if chosen.empty:
        return Found()
    shares = []
    for records in chosen["records"]:
        repeats = runs_of(case.runs, records)
        failed = repeats["failure_kind"].eq(kind) if kind else repeats["status"].ne("ok")
        shares.append(100 * float(failed.mean()))
    return Found(*_range(shares), points=chosen, blocks=int((chosen["repeats_ok"] + chosen["repeats_failed"]).min()))


@quantity("out_of_memory_pct")
def out_of_memory_pct(case: Case) -> Found:
    """Repeats that ran out of memory, %."""
    return _share_of_failures(case, "oom")


@quantity("failed_pct")
def failed_pct(case: Case) -> Found:
    """Repeats that failed, %."""
    return _share_of_failures(case, None)


def _listed(known: pd.DataFrame) -> str:
    return ", ".join(map(str, known["gpus"]))


def compute(case: Case) -> Found:
    """The value of a claim's quantity in one experiment."""
    return QUANTITIES[case.claim["quantity"]].compute(case)


def machines(claim: pd.Series) -> tuple[str, ...]:
    """The machines whose runs a claim compares; empty if it is about one machine, or about no runs."""
    of_runs = QUANTITIES.get(claim["quantity"])
    return of_runs.machines if of_runs else ()


def loaders(claim: pd.Series) -> tuple[Any, ...]:
    """The loaders whose runs a claim needs together; empty if runs of either of the paper's loaders will do."""
    of_runs = QUANTITIES.get(claim["quantity"])
    return (of_runs.loaders if of_runs else ()) or ((claim["loader"],) if claim["loader"] else ())

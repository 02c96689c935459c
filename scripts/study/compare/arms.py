"""Arms against their baseline, from the tidy table of runs: paired within blocks, and tested together.

A study declares arms under ``tuning`` of its grids. Compared is the steady throughput: samples per second of training
steps, without the first epoch, which builds the graph, and without validation.
"""

import dataclasses
import math
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pandas as pd

from study.compare import estimates, failed_runs, likeness
from study.core.errors import StudyError
from study.core.files import parse_json
from study.core.statistics import adjust_by_holm, compute_p_value, find_detectable_ratio
from study.experiment.study import BASELINE
from study.records import overlap, tidy

FAMILY_ERROR = 0.05  # with which the tests of all arms of a baseline together find a difference that is none
POWER = 0.8
FASTER, SLOWER, NO_DIFFERENCE = "faster", "slower", "no difference shown"
SPEED, SENT = tidy.STEADY, "tcp_sent_mb_per_epoch"
LOSS = "test_loss"
LEAST_LOSS = 0.01  # relative: a smaller difference of losses is that of another order of floating-point operations


@dataclass(frozen=True)
class ComparedArm:
    """An arm against its baseline.

    Args:
        arm: its name.
        switches: {grid key: (the arm's value, the baseline's)}.
        runs: the arm's runs, one per block, also those that failed.
        baseline: the baseline's runs.
        speed: ratio of steady throughput, arm / baseline; its ``left_out`` has the blocks that are not alike.
        whole: ratio of the duration of whole runs, arm / baseline, with the first epoch; None where it is unknown.
        sent: ratio of the bytes that a rank sent per epoch over TCP.
        loss: difference of the test loss within blocks, arm - baseline.
        p: of the t-test of `speed`; NaN with fewer blocks than a verdict needs.
        p_holm: adjusted over the arms of the baseline.
        artefact: by which ratio (above 1) the baseline differs from itself, at most, where the A/A arms show that it
            does; else 1. A smaller difference is not the arm's.
        detectable: the ratio (above 1) that this test finds with `POWER`, see `smallest_detectable`.
    """

    arm: str
    switches: dict[str, tuple[Any, Any]]
    runs: pd.DataFrame
    baseline: pd.DataFrame
    speed: estimates.Estimate
    sent: float
    loss: estimates.Estimate
    p: float
    whole: estimates.Estimate | None = None
    p_holm: float = math.nan
    artefact: float = 1.0
    detectable: float = math.nan

    @property
    def interrupted(self) -> int:
        """Number of blocks that are left out, as they ran in two sessions of the workflow."""
        return list(self.speed.left_out.values()).count(likeness.INTERRUPTED)

    @property
    def survivors(self) -> str | None:
        """Why the faster of the two is so among survivors only; None if failures do not speak against it."""
        return estimates.explain_survivors(self.speed, {self.arm: self.runs, BASELINE: self.baseline}, 1)

    @property
    def takes_longer(self) -> bool:
        """Whether the arm's whole runs take longer, whatever its steps do: by the 95 % interval."""
        return self.whole is not None and self.whole.find_side(1, 1) > 0

    @property
    def learns_less(self) -> bool:
        """Whether the arm's test loss is higher, by the 95 % interval of the difference and by more than `LEAST_LOSS`.

        The difference is relative to the baseline's mean loss.
        """
        usual = failed_runs.keep_proven(self.baseline)[LOSS].astype(float).abs().mean()
        return bool(self.loss.find_side(0, 0) > 0 and self.loss.value > LEAST_LOSS * usual)

    @property
    def is_control(self) -> bool:
        """Whether the arm is the baseline again (A/A)."""
        return set(self.switches) == {"control"}

    @property
    def is_artefact(self) -> bool:
        """Whether the difference may be one by which the baseline differs from itself."""
        return self.speed.find_side(1 / self.artefact, self.artefact) == 0

    @property
    def verdict(self) -> str | None:
        """`FASTER`, `SLOWER` or `NO_DIFFERENCE`, by the adjusted p; None without a test, or of survivors.

        No difference is shown by one that is not larger than those of the baseline from itself.
        """
        if math.isnan(self.p_holm):
            return None
        if self.p_holm >= FAMILY_ERROR or (self.artefact > 1 and self.is_artefact):
            return NO_DIFFERENCE
        if self.survivors:
            return None
        return FASTER if self.speed.value > 1 else SLOWER


def parse_arms(text: Any) -> list[tuple[str, str, dict[str, tuple[Any, Any]]]]:
    """(arm, baseline, switches) of each comparison of a run. text: a value of the column ``arms``, or NaN."""
    if not isinstance(text, str):
        return []
    try:
        return [_parse_arm(*each) for each in parse_json(text)]
    except (ValueError, TypeError, AttributeError, RecursionError):
        raise StudyError(
            f"runs.csv: column arms: {text[:80]!r} lists no arms; delete runs.csv to have it made again"
        ) from None


def _parse_arm(arm: str, base: str, keys: dict[str, Any]) -> tuple[str, str, dict[str, tuple[Any, Any]]]:
    """(arm, baseline, switches) of an entry of the column; raises ValueError or TypeError for anything else."""
    pairs = {key: (own, other) for key, (own, other) in keys.items()}
    if not isinstance(arm, str) or not isinstance(base, str):
        raise TypeError("an arm has a name")
    return arm, base, pairs


def compare_arms(runs: pd.DataFrame, names: Collection[str] | None = None) -> dict[tuple[str, str], list[ComparedArm]]:
    """{(machine, baseline): its arms}, in the order of the runs.

    Args:
        runs: rows of the tidy table.
        names: the arms that are compared and tested together; all by default.
    """
    return {
        key: _test_together([arm for arm in _compare_with_baseline(group) if names is None or arm.arm in names])
        for key, group in _group_by_baseline(add_compared_columns(runs))
    }


def add_compared_columns(runs: pd.DataFrame) -> pd.DataFrame:
    """The tidy table of runs with the columns that are compared, `SPEED` and `SENT`."""
    sent = runs["tcp_sent_mb_per_step"].astype(float) * runs["steps_per_epoch"].astype(float)
    return runs.assign(
        **{SPEED: tidy.compute_steady_throughput(runs), SENT: sent}, overlapped=overlap.mark_overlapping_runs(runs)
    )


def _group_by_baseline(runs: pd.DataFrame) -> Iterator[tuple[Any, pd.DataFrame]]:
    """(machine, baseline) and its runs, with the columns ``arm`` and ``switches``."""
    rows = [
        {**row, "arm": arm, "of_baseline": base, "switches": switches}
        for row in runs.to_dict("records")
        for arm, base, switches in parse_arms(row["arms"])
    ]
    if rows:
        yield from pd.DataFrame(rows).groupby(["machine", "of_baseline"], sort=False)


def _compare_with_baseline(group: pd.DataFrame) -> Iterator[ComparedArm]:
    baseline = group[group["arm"] == BASELINE]
    for name, runs in group[group["arm"] != BASELINE].groupby("arm", sort=False):
        yield _compare_arm(str(name), runs, baseline)


def _compare_arm(name: str, runs: pd.DataFrame, baseline: pd.DataFrame) -> ComparedArm:
    speed = estimates.estimate_ratio(runs, baseline, SPEED)
    return ComparedArm(
        name, runs["switches"].iloc[0], runs, baseline, speed,
        estimates.estimate_ratio(runs, baseline, SENT).value, estimates.estimate_difference(runs, baseline, LOSS),
        compute_p_value(speed.sample) if speed.has_enough_blocks else math.nan,
        estimates.estimate_ratio(runs, baseline, "runtime_s") if "runtime_s" in runs else None,
    )  # fmt: skip


def _test_together(arms: list[ComparedArm]) -> list[ComparedArm]:
    """The arms of one baseline with the results of their common test, which depend on how many arms there are."""
    adjusted = adjust_by_holm([arm.p for arm in arms])
    tests = sum(not math.isnan(arm.p) for arm in arms)
    own = compute_artefact(arm for arm in arms if arm.is_control)
    return [
        dataclasses.replace(
            arm, p_holm=p, detectable=_compute_detectable(arm, tests), artefact=1.0 if arm.is_control else own
        )
        for arm, p in zip(arms, adjusted, strict=True)
    ]


def compute_artefact(controls: Iterable[ComparedArm]) -> float:
    """The largest ratio (1 or above) by which A/A arms differ from their baseline; 1 if none is shown to differ.

    It is the far end of the interval of each control whose own test, of all controls together, finds a difference.
    """
    tested = [each for each in controls if not math.isnan(each.p)]
    differ = [each.speed for each in tested if each.p * len(tested) < FAMILY_ERROR]
    return max([1.0, *(max(each.high, 1 / each.low) for each in differ)])


def _compute_detectable(arm: ComparedArm, tests: int) -> float:
    """The ratio that the strictest test, Holm's first, finds, whatever the other arms show."""
    return math.nan if math.isnan(arm.p) else find_detectable_ratio(arm.speed.sample, FAMILY_ERROR / tests, POWER)

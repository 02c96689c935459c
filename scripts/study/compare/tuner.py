"""Pick an arm by some blocks of a study and confirm it by others.

The arm that is the fastest of many in some blocks is so partly by chance, so its gain there is too large (the winner's
curse). The blocks that confirm it have no part in the choice, and only one arm is tested with them. Which blocks these
are is declared in the study, before anything runs.
"""

import dataclasses
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from study.compare import arms, estimates, failed_runs, first_verdicts
from study.compare.arms import ComparedArm
from study.compare.noise_of_runs import ASSUMED, Noise
from study.compare.references import LEAST_REPEATS as LEAST_BLOCKS
from study.core.statistics import find_confirmable_ratio
from study.core.wording import format_count
from study.experiment.study import BASELINE, Arm, PlannedRun, Study

TURN, KEEP, NOT_ENOUGH = "turn", "keep the defaults", "not enough blocks"


@dataclass(frozen=True)
class Answer:
    """What the tuner says about one baseline.

    Args:
        point: the baseline's parameters.
        planned: how many arms the study declares, those that only set control not counted.
        screening, held_out: the numbers of the blocks.
        screened: the arms in the screening blocks that can be picked, the fastest first.
        left_out: {arm: why it cannot be picked}.
        confirmed: the pick in the held-out blocks; None if the pick is the baseline, or is not known yet.
        controls: the baseline against itself in the held-out blocks.
        name: of the baseline's point.
        family: the records of its runs and its arms', by which its first verdict is noted.
        added: how many further ones were added after its first verdict; they have no part in the answer.
        missing: the runs of the current stage without a record; as long as there are any, there is no pick or no
            confirmation, since who looks before the end and then stops finds differences that are none.
    """

    point: Mapping[str, Any]
    planned: int
    screening: tuple[int, ...]
    held_out: tuple[int, ...]
    screened: list[ComparedArm]
    left_out: dict[str, str]
    confirmed: ComparedArm | None
    controls: list[ComparedArm]
    missing: list[PlannedRun]
    name: str = ""
    family: tuple[str, ...] = ()
    added: int = 0

    @property
    def pick(self) -> ComparedArm | None:
        """The arm that was the fastest in the screening blocks, as it was there; None if the baseline was."""
        return next((arm for arm in self.screened if arm.speed.value > 1), None)

    @property
    def failed(self) -> int:
        """Number of runs of the pick that failed in the held-out blocks, not with a host that was lost."""
        return failed_runs.count_failures(self.confirmed.runs) if self.confirmed else 0

    @property
    def baseline_failed(self) -> int:
        """Number of runs of the baseline that failed in the held-out blocks; as `failed`."""
        return failed_runs.count_failures(self.confirmed.baseline) if self.confirmed else 0

    @property
    def lost(self) -> int:
        """Number of runs of the pick and of the baseline that were lost with a host or a batch job in these blocks."""
        return failed_runs.count_lost_runs(self.confirmed.runs, self.confirmed.baseline) if self.confirmed else 0

    @property
    def verdict(self) -> str:
        """By the held-out blocks only.

        An arm whose runs failed there is not turned, as it is not picked if they do. Neither is one whose steps are
        faster but whose runs take longer, or that learns less; nor one whose gain is no larger than the difference of
        the baseline from itself.
        """
        if not self.screened:
            return NOT_ENOUGH
        if self.pick is None:
            return KEEP
        if self.failed or (self.confirmed is not None and self.confirmed.takes_longer):
            return KEEP
        if self.confirmed is None or self.confirmed.verdict is None:
            return NOT_ENOUGH
        return TURN if self.confirmed.verdict == arms.FASTER and not self.confirmed.learns_less else KEEP


def split_blocks(
    study: Study, baseline: str, only: Collection[int] | None = None
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The numbers of the screening blocks and of the held-out blocks of a baseline, by its point's name.

    only: the blocks of an earlier verdict, which stands.
    """
    blocks = sorted({run.repeat for run in study.runs if run.point == baseline and (not only or run.repeat in only)})
    number = study.screening_blocks or -(-len(blocks) // 2)
    return tuple(blocks[:number]), tuple(blocks[number:])


def explain_too_few_blocks(study: Study) -> str | None:
    """Why no baseline of the study can have an answer, however its runs end; None if one can."""
    parts = [split_blocks(study, name) for name in _list_baselines(study)]
    if not parts or any(min(map(len, both)) >= LEAST_BLOCKS for both in parts):
        return None
    screening, held_out = max(parts, key=lambda both: len(both[0]) + len(both[1]))
    least = LEAST_BLOCKS
    most = max(least, study.screening_blocks or 0)
    return (
        f"{len(screening)} screening and {len(held_out)} held-out blocks at most, and study tune needs {least} of "
        f"each: set repeats to {most + least} or more in the grids with tuning"
        + (f", or screening_blocks to {least}" if most > least else "")
    )


def describe_power(study: Study, noise: Noise = ASSUMED) -> list[str]:
    """Which gain the design finds with `arms.POWER`: a line for each number of arms and blocks of its baselines."""
    designs = []
    for name in _list_baselines(study):
        numbers = tuple(map(len, split_blocks(study, name)))
        arms_of_baseline = [arm for run in study.runs for arm in run.arms if arm.baseline == name]
        own = {arm.name for arm in arms_of_baseline if arm.switches and not _is_control(arm)}
        if own and min(numbers) >= LEAST_BLOCKS:
            designs.append((len(own), *numbers))
    return [
        f"study tune: {format_count(number, 'arm')}, {screening} screening, {held_out} held-out blocks: if runs in a "
        f"block differ by {noise.words}, a gain of "
        f"{100 * (ratio - 1):.2g} % is picked and confirmed with probability {arms.POWER}; it grows with that noise"
        for number, screening, held_out in dict.fromkeys(designs)
        for ratio in [
            find_confirmable_ratio(noise.deviation, number, screening, held_out, arms.FAMILY_ERROR, arms.POWER)
        ]
    ]


def answer_baselines(
    study: Study, runs: pd.DataFrame, earlier: first_verdicts.FirstVerdicts | None = None
) -> list[Answer]:
    """One per baseline of the study.

    runs: rows of the tidy table of the runs that have a record. earlier: of `add_first_verdicts`. A verdict stands if
    repeats were added since, see `study.compare.first_verdicts`.
    """
    return [
        _answer_baseline(study, first, runs, (earlier or {}).get(name))
        for name, first in _list_baselines(study).items()
    ]


def list_needed_runs(
    study: Study, runs: pd.DataFrame, earlier: first_verdicts.FirstVerdicts | None = None
) -> list[PlannedRun]:
    """The runs of the stage that comes next: of each baseline those that its `Answer` has as missing.

    runs, earlier: as for `answer_baselines`.
    """
    missing = [run for answer in answer_baselines(study, runs, earlier) for run in answer.missing]
    return list({run.directory: run for run in missing}.values())


def add_first_verdicts(
    answers: Iterable[Answer], runs: pd.DataFrame, earlier: first_verdicts.FirstVerdicts
) -> dict[str, list[str]]:
    """The runs of the first verdict of each baseline, after these answers. runs, earlier: as for `answer_baselines`."""
    ended = {each.name: set(each.family) for each in answers if each.verdict != NOT_ENOUGH and not each.missing}
    digests = {row["record"]: first_verdicts.compute_digest(row) for _, row in runs.iterrows()}
    return {
        **earlier,
        **{name: [digests[each] for each in digests if each in family] for name, family in ended.items()},
    }


def _find_first_blocks(family: pd.DataFrame, first: list[str] | None) -> set[int] | None:
    """The blocks of the first verdict, if all its runs are still there; else None. family: rows of the tidy table."""
    if not first or family.empty:
        return None
    blocks = {first_verdicts.compute_digest(row): int(row["block"]) for _, row in family.iterrows()}
    return {blocks[each] for each in first} if set(first) <= set(blocks) else None


def _is_control(arm: Arm) -> bool:
    return set(arm.switches) == {"control"}


def _list_baselines(study: Study) -> dict[str, PlannedRun]:
    """The first repeat of each baseline by its point's name."""
    return {run.point: run for run in study.runs if any(arm.name == BASELINE for arm in run.arms) and run.repeat == 1}


def _answer_baseline(study: Study, first: PlannedRun, runs: pd.DataFrame, earlier: list[str] | None) -> Answer:
    name = first.point
    family = [(run, arm) for run in study.runs for arm in run.arms if arm.baseline == name]
    records = {f"runs/{run.directory}/record.json" for run, _ in family}
    recorded = runs[runs["record"].isin(records)] if len(runs) else runs
    blocks = _find_first_blocks(recorded, earlier)
    screening, held_out = split_blocks(study, name, blocks)
    of_answer = set(recorded.loc[recorded["block"].isin((*screening, *held_out)), "record"]) if len(recorded) else set()
    names = {arm.name for _, arm in family if arm.name != BASELINE}
    controls = {arm.name for _, arm in family if _is_control(arm)}
    answer = Answer(
        first.parameters, len(names - controls), screening, held_out, [], {}, None,
        _compare_blocks(runs, name, held_out, controls),
        _list_runs_without_record([run for run, _ in family if run.repeat in screening], runs),
        name, tuple(sorted(of_answer)), len(recorded) - len(of_answer) if blocks else 0,
    )  # fmt: skip
    if answer.missing:
        return answer
    compared = [arm for arm in _compare_blocks(runs, name, screening, names) if not arm.is_control]
    left_out = {arm.arm: why for arm in compared if (why := _explain_exclusion(arm))}
    usable = [arm for arm in compared if arm.arm not in left_out]
    answer = dataclasses.replace(
        answer, screened=sorted(usable, key=lambda arm: -arm.speed.value), left_out=left_out
    )  # fmt: skip
    if answer.pick is None:
        return answer
    held_out_arms = (BASELINE, answer.pick.arm, *controls)
    later = [run for run, arm in family if run.repeat in held_out and arm.name in held_out_arms]
    if missing := _list_runs_without_record(later, runs):
        return dataclasses.replace(answer, missing=missing)
    confirmed = _compare_blocks(runs, name, held_out, {answer.pick.arm})
    own = arms.compute_artefact(answer.controls)
    return dataclasses.replace(answer, confirmed=dataclasses.replace(confirmed[0], artefact=own) if confirmed else None)


def _list_runs_without_record(planned: list[PlannedRun], runs: pd.DataFrame) -> list[PlannedRun]:
    records = set(runs["record"]) if len(runs) else set()
    return [run for run in planned if f"runs/{run.directory}/record.json" not in records]


def _compare_blocks(
    runs: pd.DataFrame, baseline: str, blocks: tuple[int, ...], names: Iterable[str]
) -> list[ComparedArm]:
    """These arms in these blocks, tested together and with no others."""
    if runs.empty:
        return []
    groups = arms.compare_arms(runs[runs["block"].isin(blocks)], set(names))
    return [arm for (_, name), group in groups.items() if name == baseline for arm in group]


def _explain_exclusion(arm: ComparedArm) -> str | None:
    """Why an arm cannot be picked."""
    if failed := failed_runs.count_failures(arm.runs):
        return f"{failed} of {format_count(len(arm.runs), 'run')} failed in the screening blocks"
    if arm.speed.pairing == estimates.UNPAIRED:
        return "its screening blocks did not run one after the other"
    if arm.speed.blocks < LEAST_BLOCKS:
        left_out = describe_left_out(arm)
        return f"{arm.speed.blocks} of at least {LEAST_BLOCKS} screening blocks have it and its baseline{left_out}"
    return None


def describe_left_out(arm: ComparedArm) -> str:
    """How many blocks are left out since their runs are not alike or unproven, and why; empty if none is."""
    all_reasons = list(arm.speed.left_out.values())
    reasons = ", ".join(f"{format_count(all_reasons.count(why), 'block')}, {why}" for why in dict.fromkeys(all_reasons))
    unproven = failed_runs.describe_unproven(pd.concat([arm.runs, arm.baseline]))
    return f"; left out: {reasons}" + (f"; {unproven}" if unproven else "") if reasons else ""

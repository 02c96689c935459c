"""Further attempts of blocks in which a run was disturbed (``repeat_disturbed`` in the machine's file).

A block is run again whole: runs are compared within a block only if they ran side by side in one session. The least
disturbed attempt counts, by what disturbed its worst run (`disturbance.score_disturbance`), whatever its times and
results are; of equal ones the earlier. A failed run is a result: it does not make its block run again.

The other attempts are in ``results/<machine>/attempts/<number>``, which has the layout of ``results/<machine>``. So the
counting attempt is always in the run's directory, and what reads runs need not know of attempts.
"""

import contextlib
import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from study.core import csv_files, paths
from study.core.errors import StudyError
from study.core.wording import format_count
from study.experiment import earlier_attempts
from study.experiment.earlier_attempts import KEY
from study.experiment.run_order import BLOCK
from study.experiment.study import PlannedRun
from study.instruments import background, disturbance
from study.machines import launchers
from study.machines.machine import is_on_launching_host
from study.records.checked_records import CheckedRecords
from study.records.renewal import current_record, has_ended

ON_OWN_HOSTS = 1  # where the file does not say it, and there is no batch system
FILE = "attempts.csv"  # in a study's results: all attempts of the runs that have several
KINDS = {"record": csv_files.NAME, "block": csv_files.WHOLE, "attempt": csv_files.WHOLE, "counts": csv_files.FLAG,
         "status": csv_files.NAME, "disturbed": csv_files.FLAG, "disturbed_by": csv_files.TEXT,
         "runtime_s": csv_files.FINITE}  # fmt: skip
MOST_NAMED = 3  # disturbed runs of a block that a message names


@dataclass(frozen=True)
class Again:
    """A block that is run again. runs: those that are, so without failed ones.

    why: {directory of a disturbed run: by what}. attempt: the number of the next attempt; most: of the last one that
    the machine's file allows.
    """

    block: int
    runs: tuple[PlannedRun, ...]
    why: Mapping[str, list[str]]
    attempt: int
    most: int


def count_further_attempts(machine: Mapping[str, Any]) -> int:
    """How many further attempts a block may have: as the configuration or the machine's file says.

    Where it does not, one on a machine without a batch system, as anything may start beside a run there; none under a
    batch system, which gives a run nodes of its own and charges for them.
    """
    if KEY in machine:
        return int(machine[KEY])
    return ON_OWN_HOSTS if "scheduler" not in machine and launchers.get_launcher(dict(machine)).on_own_hosts else 0


def describe_further_attempts(most: int) -> str:
    """The plan's sentence on further attempts of disturbed blocks. most: attempts of a block."""
    return (
        f"a block with a disturbed run is run again at the end, at most {format_count(most, 'time')} ({KEY}; --config "
        f"{KEY}=0 turns it off): a machine that is always busy makes the study take {most + 1} times as long, no more"
    )


def explain_refusal(machine: dict[str, Any]) -> str | None:
    """Why no block can be run again on a machine although its file asks for it; None if one can."""
    if not machine.get(KEY) or not is_on_launching_host(machine) or background.can_measure_other_load():
        return None
    return f"{KEY}: this host does not show what others use of its cores (/proc/stat); leave the key out"


def find_due_blocks(runs: Iterable[PlannedRun], results: str | Path, machine: Mapping[str, Any]) -> list[Again]:
    """The blocks of a study that are to be run again; none before all runs of a block have ended.

    runs: of the study. results: ``results/<machine>``.
    """
    if not count_further_attempts(machine):
        return []
    every = list(runs)
    earlier = earlier_attempts.count_other_attempts(every, results)
    checked = CheckedRecords(results)
    due_by_block = (_find_due_block(block, list(members), results, machine, earlier, checked)
             for block, members in itertools.groupby(sorted(every, key=BLOCK), key=BLOCK))  # fmt: skip
    return [again for again in due_by_block if again]


def _find_due_block(
    block: int,
    runs: list[PlannedRun],
    results: str | Path,
    machine: Mapping[str, Any],
    earlier: Mapping[str, int],
    checked: CheckedRecords,
) -> Again | None:
    if not all(Path(paths.locate_outcome(results, run.directory)).exists() for run in runs):
        return None
    ended = [(run, _read_record(results, run, checked)) for run in runs]
    whole = [(run, record) for run, record in ended if record and record["status"] == "ok"]
    most = 1 + count_further_attempts(machine)
    why = {
        directory: reasons
        for directory, reasons in _find_disturbed(whole, machine).items()
        if 1 + earlier.get(directory, 0) < most
    }
    if not why:
        return None
    attempt = 2 + max(earlier.get(directory, 0) for directory in why)
    return Again(block, tuple(run for run, _ in whole), why, attempt, most)


def _find_disturbed(
    ended: Iterable[tuple[PlannedRun, Mapping[str, Any]]], machine: Mapping[str, Any]
) -> dict[str, list[str]]:
    """{directory of a disturbed run: the reasons why it counts as disturbed}."""
    reasons_by_run = ((run.directory, disturbance.list_reasons(record["background"], machine.get("disturbance")))
            for run, record in ended)  # fmt: skip
    return {directory: reasons for directory, reasons in reasons_by_run if reasons}


def describe_still_disturbed(runs: Iterable[PlannedRun], results: str | Path, machine: Mapping[str, Any]) -> list[str]:
    """A line if runs are disturbed although their blocks were run again as often as they may be; else none.

    runs: of the study. results: ``results/<machine>``.
    """
    most, every = 1 + count_further_attempts(machine), list(runs)
    earlier = earlier_attempts.count_other_attempts(every, results) if most > 1 else {}
    last = [run for run in every if 1 + earlier.get(run.directory, 0) >= most > 1]
    checked = CheckedRecords(results)
    ended = [
        (run, record) for run in last if (record := _read_record(results, run, checked)) and record["status"] == "ok"
    ]
    disturbed = _find_disturbed(ended, machine)
    if not disturbed:
        return []
    return [
        f"{format_count(len(disturbed), 'run')} of {len(every)} {'is' if len(disturbed) == 1 else 'are'} disturbed in "
        f"each of {format_count(most, 'attempt')}, as many as {KEY} allows. The least disturbed one counts and stays "
        "marked (runs.csv, disturbed_by). This machine was busy for long: end the other work, delete the folders of "
        "these runs and start again"
    ]


def set_aside_attempts(runs: Iterable[PlannedRun], results: str | Path) -> None:
    """Move the folders of runs out of the way of another attempt. results: ``results/<machine>``."""
    every = list(runs)
    others = earlier_attempts.list_other_attempts(every, results)
    for run in every:
        number = earlier_attempts.find_attempt_in_place(others.get(run.directory, ()))
        target = _locate_attempt(results, number, run.directory)
        target.parent.mkdir(parents=True, exist_ok=True)
        Path(paths.locate_run(results, run.directory)).rename(target)


def keep_least_disturbed(runs: Iterable[PlannedRun], results: str | Path) -> None:
    """Move the least disturbed attempt of each block to its runs' directories. results: ``results/<machine>``.

    Only attempts that all repeated runs of the block have, each with a record, are compared.
    """
    every = list(runs)
    others = earlier_attempts.list_other_attempts(every, results)
    repeated = sorted((run for run in every if run.directory in others), key=BLOCK)
    for _, members in itertools.groupby(repeated, key=BLOCK):
        block = list(members)
        in_place = {run.directory: earlier_attempts.find_attempt_in_place(others[run.directory]) for run in block}
        numbers = set.intersection(*({*others[run.directory], in_place[run.directory]} for run in block))
        scores = {
            number: max(scores_of_runs)
            for number in sorted(numbers)
            if (scores_of_runs := _score_attempt(block, results, number, in_place)) is not None
        }
        if len(scores) < 2 or len({*in_place.values()}) > 1:
            continue
        best = min(scores, key=lambda number: scores[number])  # of equal ones the first
        if best != in_place[block[0].directory]:
            set_aside_attempts(block, results)
            for run in block:
                _locate_attempt(results, best, run.directory).rename(paths.locate_run(results, run.directory))


def _score_attempt(
    block: Iterable[PlannedRun], results: str | Path, number: int, in_place: Mapping[str, int]
) -> list[float] | None:
    """How much each run of an attempt was disturbed; None if one has no record."""
    scores = []
    for run in block:
        folder = results if number == in_place[run.directory] else Path(results, paths.ATTEMPTS, str(number))
        path = Path(paths.locate_record(folder, run.directory))
        if not has_ended(path):
            return None
        scores.append(disturbance.score_disturbance(current_record(path)["background"]))
    return scores


def _locate_attempt(results: str | Path, number: int, directory: str) -> Path:
    """The folder of an attempt of a run that is put aside."""
    return Path(paths.locate_run(Path(results, paths.ATTEMPTS, str(number)), directory))


def describe_blocks(blocks: Iterable[Again]) -> list[str]:
    """What is run again, and why: a line per block."""
    sentences_by_place = []
    for each in blocks:
        named = [f"{directory}: {'; '.join(reasons)}" for directory, reasons in each.why.items()]
        more = f", and {len(named) - MOST_NAMED} more" if len(named) > MOST_NAMED else ""
        sentences_by_place.append(
            f"block {each.block} is run again, attempt {each.attempt} of at most {each.most} "
            f"({format_count(len(each.runs), 'run')}), as {format_count(len(named), 'run')} of it "
            f"{'was' if len(named) == 1 else 'were'} disturbed: {', '.join(named[:MOST_NAMED])}{more}"
        )
    return sentences_by_place


def tabulate_attempts(
    runs: Iterable[PlannedRun], results: str | Path, limits: Mapping[str, float] | None
) -> pd.DataFrame:
    """All attempts of the runs that have several, a row each, with the columns of `KINDS`.

    results: ``results/<machine>``, to which the column ``record`` is relative. limits: ``disturbance`` of the machine's
    file. Raises `StudyError` for a record that cannot be read.
    """
    every, rows = {run.directory: run for run in runs}, list[dict[str, Any]]()
    for directory, others in earlier_attempts.list_other_attempts(every.values(), results).items():
        folders = [Path(results, paths.ATTEMPTS, str(number)) for number in others]
        places = [Path(paths.locate_record(folder, directory)) for folder in (*folders, results)]
        for path in filter(has_ended, places):
            record = current_record(path)
            reasons = disturbance.list_reasons(record["background"], limits)
            rows.append({
                "record": str(path.relative_to(results)),
                "block": record["block"],
                "attempt": record["attempt"],
                "counts": path is places[-1],
                "status": record["status"],
                "disturbed": disturbance.is_disturbed(record["background"], limits),
                "disturbed_by": "; ".join(reasons) or None,
                "runtime_s": record["runtime_s"],
            })  # fmt: skip
    return pd.DataFrame(rows, columns=list(KINDS))


def describe_attempts(folder: Path) -> list[str]:
    """What the report says of further attempts: a sentence per block. folder: of the study's results.

    Raises `StudyError` for a damaged file.
    """
    path = folder / FILE
    if not path.exists():
        return []
    attempts = csv_files.read_csv(path, KINDS, may_be_empty=True)
    texts = []
    for block, rows in attempts.groupby("block") if len(attempts) else ():
        disturbed = rows[rows["attempt"].eq(1) & rows["disturbed"].eq(True)]
        why = [f"attempt {row['attempt']} of {Path(row['record']).parent.name}: {row['disturbed_by']}"
               for _, row in disturbed.head(MOST_NAMED).iterrows()]  # fmt: skip
        more = f"; and {len(disturbed) - MOST_NAMED} more" if len(disturbed) > MOST_NAMED else ""
        again = format_count(int(rows["counts"].astype(bool).sum()), "run")
        counting = int(rows.loc[rows["counts"].astype(bool), "attempt"].max())
        texts.append(
            f"Block {block} was run again ({again}), since it was disturbed: {'; '.join(why)}{more}. "
            f"Attempt {counting} counts, the least disturbed one."
        )
    return texts


def _read_record(results: str | Path, run: PlannedRun, checked: CheckedRecords) -> dict[str, Any] | None:
    """A run's record as it is there, by whatever code it was made; None without one that can be read."""
    with contextlib.suppress(StudyError):
        return checked.read(paths.locate_record(results, run.directory))
    return None

"""What may be compared with what: the one place that every verdict asks.

A difference between arms is theirs only if nothing else differs between them.

- **Within a block** all but the arms' keys must be alike: code, libraries, data, settings (`ALIKE`), and hosts. Between
  blocks they may differ: a ratio within blocks does not see it. A block that is not alike is left out, with the reason.
- **Hosts** may differ within blocks only if no arm is tied to some: the arms take turns on them, or, as with jobs of a
  cluster, are on ever other ones. They are those of the ranks, which the launching node of a batch job need not be.
- **Runs that were on one host at the same time** took cores, bandwidth and power from each other, and enter nothing.
- **Failures are results**: who leaves them out compares survivors. See `study.compare.failed_runs`.

A column that a table lacks, and a value that is missing, are taken to be alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import pandas as pd

from study.core import cores, fields
from study.core.environment import tells
from study.core.errors import StudyError
from study.core.files import parsed_json
from study.experiment import autotuning
from study.launch.variables import SWITCHES
from study.records import overlap

# Columns of runs.csv that must be alike within a block, and among repeats: {column: what several values are}.
ALIKE = {name: each.alike for name, each in fields.columns().items() if each.alike}
# The keys that make one of these another: the arm itself, if it differs in one. A machine is all that it has.
FREED_BY = {name: fields.columns()[name].freed_by for name in ALIKE}
# Variables that a key sets; a run in which the key has another value has them otherwise. See `study.launch.variables`.
SET_BY = {
    **{key: tuple(named) for key, named in SWITCHES.items()},
    "intra_op_threads": ("OMP_NUM_THREADS",),
    "autotune": (*autotuning.VARIABLES, "HOROVOD_AUTOTUNE_LOG", "HOROVOD_CACHE_CAPACITY"),
    "core_limit": (cores.VARIABLE,),
    "trace": ("HOROVOD_TIMELINE", "HOROVOD_CACHE_CAPACITY"),
}
OF_FOLDER = ("HOROVOD_TIMELINE", "HOROVOD_AUTOTUNE_LOG")  # files in the run's own directory
STEERING = "several settings of the environment"
HOSTS = "runs on different hosts, which did not take turns"
PAGE_CACHE = "runs that read their files from storage, and others from the page cache"
COLD = 0.5  # of the bytes that a run asked for while loading: so many from storage, and it counts as cold
WITH_LOADING = ("load_s", "stage_s", "runtime_s", "launch_to_target_s")  # quantities; energies include it too
APART = "runs of several sessions, since some were run again for another study"
LEAST_APART = 3  # blocks on different hosts, without turns on them, that can show an arm to be tied to some
TIED = 0.5  # of an arm's uses of hosts: up to so many may repeat hosts that the other arm is not on as often


def describe_difference(runs: pd.DataFrame, free: Collection[str] = ()) -> str | None:
    """Why runs of one block, or repeats of one point, cannot be compared: the first of `ALIKE`; None if they can.

    free: columns in which they may differ.
    """
    found = _several(runs.assign(**{_BLOCK: 0}), free)
    return next((what for whats in found.values() for what in whats), None)


def explain_unlike_blocks(rows: pd.DataFrame) -> dict[Any, str]:
    """{block: why its runs cannot be compared}, see `describe_difference`. rows: with the blocks as index."""
    unlike = _several(rows.rename_axis(_BLOCK).reset_index(), ())
    return {block: f"its block has {whats[0]}" for block, whats in unlike.items()}


def has_differences(runs: pd.DataFrame) -> bool:
    """Whether runs differ in anything that `describe_difference` looks at; if not, all repeats of a point are alike."""
    return any(name in runs and runs[name].nunique() > 1 for name in (*ALIKE, "steering"))


def list_differences(one: pd.DataFrame, other: pd.DataFrame) -> list[str]:
    """In what of `ALIKE` two sets of runs differ, that are compared though they may: two machines, or two versions."""
    return [
        what
        for column, what in ALIKE.items()
        if column in one and column in other and set(one[column].dropna()) != set(other[column].dropna())
    ]


def explain_left_out_blocks(
    arms: Sequence[pd.DataFrame], free: Collection[str] = (), columns: Collection[str] = ()
) -> dict[Any, str]:
    """{block: why it cannot be compared}, of blocks that all arms have. arms: rows with the blocks as index, in order.

    free: as for `describe_difference`. columns: of the quantity that is compared.
    """
    rows = pd.concat(arms).rename_axis(_BLOCK).reset_index()
    if "record" in rows:
        rows = rows.drop_duplicates("record")  # an arm that is compared with itself
    found = {block: f"its block has {whats[0]}" for block, whats in _several(rows, free).items()}
    for block in _overlapped_blocks(rows):
        found.setdefault(block, f"its block has {overlap.AT_ONCE}")
    for block in _read_unlike(rows) if _includes_loading(columns) else ():
        found.setdefault(block, f"its block has {PAGE_CACHE}")
    if "machine" in rows and rows["machine"].nunique() > 1:
        return found
    for block in _run_again_apart(rows):
        found.setdefault(block, f"its block has {APART}")
    for block in _on_other_hosts([each[~each.index.isin(list(found))] for each in arms]):
        found[block] = f"its block has {HOSTS}"
    return found


_BLOCK = "block_compared"
# All columns from which `explain_left_out_blocks` and `study.records.overlap` tell.
READ = tuple(dict.fromkeys((
    "machine", "record", "session", "attempt", "steering", "storage_read_mb", "shared_read_mb", "loader", *ALIKE,
    *(key for keys in FREED_BY.values() for key in keys), *SET_BY, *overlap.OF_TIMES,
)))  # fmt: skip


def _overlapped_blocks(rows: pd.DataFrame) -> list[Any]:
    """The blocks with runs that were on one host at the same time. rows: with the column `_BLOCK`.

    Where one clock times all runs and no two of them overlap, no block need be looked at: tables of thousands of runs
    have thousands of blocks.
    """
    narrow = rows[
        [name for name in (_BLOCK, *overlap.OF_TIMES) if name in rows]
    ]  # hundreds of columns take long to divide
    has_monotonic = (
        narrow[overlap.MONOTONIC].notna().all(axis=1).any() if set(overlap.MONOTONIC) <= set(narrow) else False
    )
    if (overlap.has_one_monotonic_clock(narrow) or not has_monotonic) and not overlap.mark_overlapping_runs(
        narrow
    ).any():
        return []
    return [block for block, runs in narrow.groupby(_BLOCK) if overlap.mark_overlapping_runs(runs).any()]


def _includes_loading(columns: Collection[str]) -> bool:
    """Whether a quantity depends on where the files were read from."""
    return any(name in WITH_LOADING or name.endswith(("_j", "_js")) for name in columns)


def _read_unlike(runs: pd.DataFrame) -> list[Any]:
    """The blocks of which some runs found their files in the page cache, and others did not: the first run warms it.

    It is unknown of mapped files, whose pages are read later. runs: with the column `_BLOCK`.
    """
    if not {"storage_read_mb", "shared_read_mb"} <= set(runs):
        return []
    asked, stored = (runs[name].astype(float) for name in ("shared_read_mb", "storage_read_mb"))
    known = (asked > 0) & stored.notna() & (runs["loader"].ne("mapped") if "loader" in runs else True)
    states = (stored > COLD * asked)[known].groupby(runs.loc[known, _BLOCK]).nunique()
    return list(states[states > 1].index)


def find_blocks_read_unlike(arms: Sequence[pd.DataFrame], column: str) -> list[Any]:
    """The blocks of which some runs read from storage and others from the page cache, if ``column`` includes loading.

    arms: rows, with their ``block``.
    """
    rows = pd.concat(arms)
    return _read_unlike(rows.assign(**{_BLOCK: rows["block"]})) if _includes_loading([column]) else []


def _run_again_apart(runs: pd.DataFrame) -> list[Any]:
    """The blocks of which a disturbed run was run again without the others: for a study that has only some of them.

    runs: with the column `_BLOCK`.
    """
    if not {"attempt", "session"} <= set(runs):
        return []
    blocks = runs.groupby(_BLOCK)
    apart = (blocks["attempt"].max() > 1) & (blocks["session"].nunique() > 1)
    return list(apart[apart].index)


def _several(rows: pd.DataFrame, free: Collection[str]) -> dict[Any, list[str]]:
    """{block: what of `ALIKE`, or of the environment, it has several of}. rows: with the column `_BLOCK`."""
    found: dict[Any, list[str]] = {}
    for column, what in ALIKE.items():
        if column not in rows or column in free or rows[column].nunique() < 2:
            continue
        keys = [_BLOCK, *(key for key in FREED_BY[column] if key in rows and key not in free)]
        numbers = rows.groupby(keys, dropna=False)[column].nunique()
        for block in numbers[numbers > 1].index.get_level_values(0).unique():
            found.setdefault(block, []).append(what)
    if "steering" in rows and "steering" not in free and rows["steering"].nunique() > 1:
        for block, runs in rows.groupby(_BLOCK):
            if _differs_in_steering(runs):
                found.setdefault(block, []).append(STEERING)
    return found


def _differs_in_steering(runs: pd.DataFrame) -> bool:
    """Whether runs differ in variables that no key explains in which they differ."""
    if "machine" in runs and runs["machine"].nunique() > 1:
        return False
    known = [_steering(text) for text in runs["steering"].dropna().unique()]
    explained = {
        name for key, names in SET_BY.items() if key in runs and runs[key].nunique(dropna=False) > 1 for name in names
    }
    names = {name for each in known for name in each} - explained - set(OF_FOLDER)
    return any(len({each.get(name) for each in known if tells(each, name)}) > 1 for name in names)


def _steering(text: Any) -> dict[str, str]:
    """The variables of a value of the column ``steering``."""
    try:
        found = parsed_json(text)
        if isinstance(found, dict) and all(isinstance(value, str) for value in found.values()):
            return found
    except (ValueError, TypeError, RecursionError):
        pass
    raise StudyError(
        f"runs.csv: column steering: {str(text)[:80]!r} lists no variables; delete runs.csv to have it made again"
    )


def _on_other_hosts(arms: Sequence[pd.DataFrame]) -> list[Any]:
    """The blocks in which two arms had different hosts, unless neither arm was tied to some of them.

    An arm on fewer ranks may be on some of the other's hosts only.
    """
    if any("hosts" not in each for each in arms):
        return []
    found: dict[Any, None] = {}
    for place, one in enumerate(arms):
        for other in arms[place + 1 :]:
            pairs = zip(
                one.index, map(overlap.parse_hosts, one["hosts"]), map(overlap.parse_hosts, other["hosts"]), strict=True
            )
            apart = [(block, ours, theirs) for block, ours, theirs in pairs if not (ours <= theirs or theirs <= ours)]
            used = [Counter(host for each in apart for host in each[side]) for side in (1, 2)]
            if not (
                _took_turns(*used) or (len(apart) >= LEAST_APART and max(_tied(*used), _tied(*used[::-1])) <= TIED)
            ):
                found |= dict.fromkeys(block for block, _, _ in apart)
    return list(found)


def _took_turns(one: Counter[str], other: Counter[str]) -> bool:
    """Whether each host had both arms about equally often. one, other: how often each arm was on each host."""
    return bool(one & other) and all(abs(one[host] - other[host]) <= 1 for host in one | other)


def _tied(one: Counter[str], other: Counter[str]) -> float:
    """The share of an arm's uses of hosts that repeat one which the other arm does not match.

    It is 1 for an arm that is always on the same hosts, and the other on others: a host's speed would be the arm's. It
    is 0 for an arm that is on other hosts each time: their speeds are scatter, which the interval has.
    """
    repeated = sum(times - other[host] for host, times in one.items() if times > 1 and times > other[host])
    return repeated / one.total() if one else 0.0


def find_copied_runs(runs: pd.DataFrame) -> Iterator[list[str]]:
    """The records of each run that is there twice, under two labels or in two folders: a copy is no second run.

    A run is known by its directory's name, its start, its session and all that it measured.
    """
    known = [name for name in IDENTITY if name in runs]
    if "started_wall_ns" not in known:
        return
    directory = runs["record"].map(lambda record: str(record).rpartition("/runs/")[2])
    for _, group in runs.assign(_directory=directory).groupby(["_directory", *known], dropna=False, sort=False):
        if group["record"].nunique() > 1:
            yield list(group["record"])


IDENTITY = ("started_wall_ns", "session", "host", "status", "runtime_s", "load_s", "train_s", "energy_job_j", "loss",
            "final_weights_crc32")  # fmt: skip

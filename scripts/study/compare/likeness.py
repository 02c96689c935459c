"""Which blocks and repeats may be compared: the one place that every verdict asks; `rank_answer` chooses rank counts.

A difference between arms is theirs only if nothing else differs between them.

- **Within a block** all but the arms' keys must be alike: code, libraries, data, settings (`ALIKE`), and hosts. Between
  blocks they may differ: a ratio within blocks does not see it. A block that is not alike is left out, with the reason.
- **Hosts** may differ within blocks only if no arm is tied to some: the arms take turns on them, or, as with jobs of a
  cluster, are on ever other ones. They are those of the ranks, which the launching node of a batch job need not be.
- **Blocks** run one after the other or, on a batch system, each in a job of its own that makes its runs on equally many
  nodes one after the other. Runs on more nodes are another job's: on other nodes, at another time.
- **Runs that were on one host at the same time** took cores, bandwidth and power from each other, and enter nothing.
- **Failures are results**: who leaves them out compares survivors. See `study.compare.failed_runs`.

A column that a table lacks, and a value that is missing, are taken to be alike.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from study.compare import failed_runs
from study.core import cores, fields
from study.core.environment import is_recorded
from study.core.errors import StudyError
from study.core.files import parse_json
from study.instruments.power.readings import MODELLED
from study.launch.variables import SWITCHES
from study.records import overlap
from study.records.power import OF_POWER

# Columns of runs.csv that must be alike within a block, and among repeats: {column: what several values are}.
ALIKE = {name: each.alike for name, each in fields.list_columns().items() if each.alike}
# The keys that make one of these another: the arm itself, if it differs in one. A machine is all that it has.
FREED_BY = {name: fields.list_columns()[name].freed_by for name in ALIKE}
# Variables that a key sets; a run in which the key has another value has them otherwise. See `study.launch.variables`.
SET_BY = {
    **{key: tuple(named) for key, named in SWITCHES.items()},
    "intra_op_threads": ("OMP_NUM_THREADS",),
    "core_limit": (cores.VARIABLE,),
    "trace": ("HOROVOD_TIMELINE", "HOROVOD_CACHE_CAPACITY"),
}
OF_FOLDER = ("HOROVOD_TIMELINE",)  # files in the run's own directory
STEERING = "several settings of the environment"
HOSTS = "runs on different hosts, which did not take turns"
PAGE_CACHE = "runs that read their files from storage, and others from the page cache"
COLD = 0.5  # of the bytes that a run asked for while loading: so many from storage, and it counts as cold
WITH_LOADING = ("load_s", "stage_s", "runtime_s", "launch_to_target_s")  # quantities; energies include it too
INTERRUPTED = "its block was interrupted: runs of two starts of the workflow"
APART = "its block has runs of several sessions, since some were run again for another study"
SEVERAL_JOBS = "its block has runs on equally many nodes in several batch jobs"
LEAST_APART = 3  # blocks on different hosts, without turns on them, that can show an arm to be tied to some
TIED = 0.5  # of an arm's uses of hosts: up to so many may repeat hosts that the other arm is not on as often


def describe_difference(runs: pd.DataFrame, free: Collection[str] = ()) -> str | None:
    """Why runs of one block, or repeats of one point, cannot be compared: the first of `ALIKE`; None if they can.

    free: columns in which they may differ.
    """
    differences = _collect_differences(runs.assign(**{_BLOCK: 0}), free)
    return next(itertools.chain.from_iterable(differences.values()), None)


def explain_unlike_blocks(rows: pd.DataFrame) -> dict[Any, str]:
    """{block: why its runs cannot be compared}, see `describe_difference`. rows: with the blocks as index."""
    differences = _collect_differences(rows.rename_axis(_BLOCK).reset_index(), ())
    return {block: f"its block has {several[0]}" for block, several in differences.items()}


def has_differences(runs: pd.DataFrame) -> bool:
    """Whether runs differ in anything that `describe_difference` looks at; if not, all repeats of a point are alike."""
    return any(name in runs and runs[name].nunique() > 1 for name in (*ALIKE, "steering"))


def list_differences(one: pd.DataFrame, other: pd.DataFrame) -> list[str]:
    """The properties of `ALIKE` in which two machines or versions differ."""
    return [
        difference
        for column, difference in ALIKE.items()
        if column in one and column in other and set(one[column].dropna()) != set(other[column].dropna())
    ]


def explain_left_out_blocks(
    arms: Sequence[pd.DataFrame],
    free: Collection[str] = (),
    columns: Collection[str] = (),
    may_be_interrupted: bool = False,
) -> dict[Any, str]:
    """{block: why it cannot be compared}, of blocks that all arms have. arms: rows with the blocks as index, in order.

    free: as for `describe_difference`. columns: of the quantity that is compared. may_be_interrupted: whether blocks
    count that are of several sessions.
    """
    rows = pd.concat(arms).rename_axis(_BLOCK).reset_index()
    if "record" in rows:
        rows = rows.drop_duplicates("record")  # an arm that is compared with itself
    reasons = {block: f"its block has {several[0]}" for block, several in _collect_differences(rows, free).items()}
    for block in _find_overlapped_blocks(rows):
        reasons.setdefault(block, f"its block has {overlap.AT_ONCE}")
    for block in _find_mixed_reads(rows) if _includes_loading(columns) else ():
        reasons.setdefault(block, f"its block has {PAGE_CACHE}")
    if "machine" in rows and rows["machine"].nunique() > 1:
        return reasons
    for block, reason in _explain_several_sessions(rows).items():
        if reason == APART or not may_be_interrupted:
            reasons.setdefault(block, reason)
    for block in _find_blocks_on_other_hosts([each[~each.index.isin(list(reasons))] for each in arms]):
        reasons[block] = f"its block has {HOSTS}"
    if "batch_job" in rows and rows["batch_job"].notna().any():
        rest = rows[~rows[_BLOCK].isin(list(reasons))].set_index(_BLOCK)
        divided = set() if ran_in_turn(rest) else find_divided_blocks(rest)
        reasons |= {} if divided == set(rest.index) else dict.fromkeys(sorted(divided), SEVERAL_JOBS)
    return reasons


def ran_in_turn(rows: pd.DataFrame) -> bool:
    """Whether each block is of one session and ended before the next one began. rows: with the blocks as index.

    A run ends its duration after its start; see `study.records.overlap.compute_run_spans` for whose clock counts.
    """
    if rows.empty or not {"session", "started_wall_ns"} <= set(rows):
        return rows.empty
    if (rows.groupby(level=0)["session"].nunique() > 1).any():
        return False
    spans = overlap.compute_run_spans(rows.reset_index())
    blocks = spans.groupby(rows.index.to_numpy())
    ordered = pd.DataFrame(
        {"first": blocks["begin"].min(), "last": blocks["begin"].max(), "end": blocks["end"].max()}
    ).sort_values("first")
    later = ordered["first"].iloc[1:].to_numpy()
    return bool(((ordered["last"].iloc[:-1] < later) & (ordered["end"].iloc[:-1] <= later)).all())


def find_divided_blocks(rows: pd.DataFrame) -> set[Any]:
    """The blocks whose runs on equally many nodes were not made one after the other in one batch job.

    rows: with the blocks as index.
    """
    if not {"batch_job", "nodes"} <= set(rows) or rows["batch_job"].isna().all():
        return set(rows.index)
    return {
        block
        for (block, _), runs in rows.groupby([rows.index, "nodes"])
        if runs["batch_job"].isna().any() or runs["batch_job"].nunique() > 1 or _has_runs_at_once(runs)
    }


def _has_runs_at_once(runs: pd.DataFrame) -> bool:
    """Whether one of the runs began before the one before it had ended, on whatever nodes."""
    spans = overlap.compute_run_spans(runs).sort_values("begin")
    return bool((spans["begin"].iloc[1:].to_numpy() < spans["end"].iloc[:-1].to_numpy()).any())


_BLOCK = "block_compared"
# All columns from which `explain_left_out_blocks` and `study.records.overlap` tell.
READ = tuple(dict.fromkeys((
    "machine", "record", "session", "batch_job", "nodes", "attempt", "steering", "storage_read_mb", "shared_read_mb",
    "loader", *ALIKE, *(key for keys in FREED_BY.values() for key in keys), *SET_BY, *overlap.OF_TIMES,
)))  # fmt: skip


def _find_overlapped_blocks(rows: pd.DataFrame) -> list[Any]:
    """The blocks with runs that were on one host at the same time. rows: with the column `_BLOCK`.

    Where one clock times all runs and no two of them overlap, no block need be looked at: tables of thousands of runs
    have thousands of blocks.
    """
    # Hundreds of columns take long to divide.
    narrow = rows[[name for name in (_BLOCK, *overlap.OF_TIMES) if name in rows]]
    has_monotonic = set(overlap.MONOTONIC) <= set(narrow) and narrow[overlap.MONOTONIC].notna().all(axis=1).any()
    has_one_clock = not has_monotonic or overlap.has_one_monotonic_clock(narrow)
    if has_one_clock and not overlap.mark_overlapping_runs(narrow).any():
        return []
    return [block for block, runs in narrow.groupby(_BLOCK) if overlap.mark_overlapping_runs(runs).any()]


def _includes_loading(columns: Collection[str]) -> bool:
    """Whether a quantity depends on where the files were read from."""
    return any(name in WITH_LOADING or name.endswith(("_j", "_js")) for name in columns)


def _find_mixed_reads(runs: pd.DataFrame) -> list[Any]:
    """The blocks with runs that read from storage and runs that read from the page cache, which the first run warms.

    It is unknown of mapped files, whose pages are read later. runs: with the column `_BLOCK`.
    """
    if not {"storage_read_mb", "shared_read_mb"} <= set(runs):
        return []
    requested, stored = (runs[name].astype(float) for name in ("shared_read_mb", "storage_read_mb"))
    is_known = (requested > 0) & stored.notna() & (runs["loader"].ne("mapped") if "loader" in runs else True)
    states = (stored > COLD * requested)[is_known].groupby(runs.loc[is_known, _BLOCK]).nunique()
    return list(states[states > 1].index)


def find_blocks_read_unlike(arms: Sequence[pd.DataFrame], column: str) -> list[Any]:
    """The blocks of which some runs read from storage and others from the page cache, if ``column`` includes loading.

    arms: rows, with their ``block``.
    """
    rows = pd.concat(arms)
    return _find_mixed_reads(rows.assign(**{_BLOCK: rows["block"]})) if _includes_loading([column]) else []


def _explain_several_sessions(runs: pd.DataFrame) -> dict[Any, str]:
    """{block: why its runs are of several sessions}: interrupted, or some ran again for a study without the others.

    runs: with the column `_BLOCK`.
    """
    if "session" not in runs or runs["session"].nunique() < 2:
        return {}
    blocks = runs.groupby(_BLOCK)
    several = blocks["session"].nunique() > 1
    attempts = blocks["attempt"].max() if "attempt" in runs else several.astype(int)
    return {block: APART if attempts[block] > 1 else INTERRUPTED for block in several.index[several]}


def _collect_differences(rows: pd.DataFrame, free: Collection[str]) -> dict[Any, list[str]]:
    """{block: the properties in which its runs differ}, also of the environment. rows: with the column `_BLOCK`."""
    differences: dict[Any, list[str]] = {}
    for column, difference in ALIKE.items():
        if column not in rows or column in free or rows[column].nunique() < 2:
            continue
        keys = [_BLOCK, *(key for key in FREED_BY[column] if key in rows and key not in free)]
        numbers = rows.groupby(keys, dropna=False)[column].nunique()
        for block in numbers[numbers > 1].index.get_level_values(0).unique():
            differences.setdefault(block, []).append(difference)
    if "steering" in rows and "steering" not in free and rows["steering"].nunique() > 1:
        for block, runs in rows.groupby(_BLOCK):
            if _differs_in_steering(runs):
                differences.setdefault(block, []).append(STEERING)
    return differences


def _differs_in_steering(runs: pd.DataFrame) -> bool:
    """Whether runs differ in variables of the environment that do not follow from different keys."""
    if "machine" in runs and runs["machine"].nunique() > 1:
        return False
    settings = [_parse_steering(text) for text in runs["steering"].dropna().unique()]
    explained = {
        name for key, names in SET_BY.items() if key in runs and runs[key].nunique(dropna=False) > 1 for name in names
    }
    names = {name for each in settings for name in each} - explained - set(OF_FOLDER)
    return any(len({each.get(name) for each in settings if is_recorded(each, name)}) > 1 for name in names)


def _parse_steering(text: Any) -> dict[str, str]:
    """{variable: value} of a value of the column ``steering``; raises `StudyError` if it is none."""
    try:
        variables = parse_json(text)
        if isinstance(variables, dict) and all(isinstance(value, str) for value in variables.values()):
            return variables
    except (ValueError, TypeError, RecursionError):
        pass
    raise StudyError(
        f"runs.csv: column steering: {str(text)[:80]!r} lists no variables; delete runs.csv to have it made again"
    )


def _find_blocks_on_other_hosts(arms: Sequence[pd.DataFrame]) -> list[Any]:
    """The blocks in which two arms had different hosts, unless neither arm was tied to some of them.

    An arm on fewer ranks may be on some of the other's hosts only; one on fewer nodes of a batch system is on others.
    """
    if any("hosts" not in each for each in arms):
        return []
    blocks: dict[Any, None] = {}
    for place, one in enumerate(arms):
        for other in arms[place + 1 :]:
            if _are_of_other_sizes(one, other):
                continue
            pairs = zip(
                one.index, map(overlap.parse_hosts, one["hosts"]), map(overlap.parse_hosts, other["hosts"]), strict=True
            )
            apart = [(block, ours, theirs) for block, ours, theirs in pairs if not (ours <= theirs or theirs <= ours)]
            used = [Counter(host for each in apart for host in each[side]) for side in (1, 2)]
            is_tied = max(_compute_tied_share(*used), _compute_tied_share(*used[::-1])) > TIED
            if not _have_taken_turns(*used) and (len(apart) < LEAST_APART or is_tied):
                blocks |= dict.fromkeys(block for block, _, _ in apart)
    return list(blocks)


def _are_of_other_sizes(one: pd.DataFrame, other: pd.DataFrame) -> bool:
    """Whether all runs of two arms were made in batch jobs, those of one arm on more nodes than those of the other."""
    if any(not {"batch_job", "nodes"} <= set(each) or each["batch_job"].isna().any() for each in (one, other)):
        return False
    return set(one["nodes"]).isdisjoint(other["nodes"])


def _have_taken_turns(one: Counter[str], other: Counter[str]) -> bool:
    """Whether each host had both arms about equally often. one, other: how often each arm was on each host."""
    return bool(one & other) and all(abs(one[host] - other[host]) <= 1 for host in one | other)


def _compute_tied_share(one: Counter[str], other: Counter[str]) -> float:
    """The share of an arm's uses of hosts that repeat one which the other arm does not match.

    It is 1 for an arm that is always on the same hosts, and the other on others: a host's speed would be the arm's. It
    is 0 for an arm that is on other hosts each time: their speeds are scatter, which the interval has.
    """
    repeated = sum(times - other[host] for host, times in one.items() if times > 1 and times > other[host])
    return repeated / one.total() if one else 0.0


def explain_left_out_runs(
    arms: Mapping[Any, pd.DataFrame], columns: Collection[str], values: Collection[str], positive: Collection[str] = ()
) -> dict[str, str]:
    """{record: why it enters no estimate} of the runs of all arms: by themselves, and by their blocks.

    Args:
        arms: rows of the tidy table of runs, with the columns ``overlapped`` and ``values``.
        columns: the columns that the quantities are made from.
        values: the columns that are compared, NaN where there is no value.
        positive: those of them of which only positive values enter.
    """
    rows = pd.concat(arms.values())
    reasons = {row["record"]: _explain_left_out_run(row, columns, values, positive) for row in rows.to_dict("records")}
    if not set(columns).isdisjoint(OF_POWER) and rows["power_source"].nunique() > 1:
        modelled = rows.loc[rows["power_source"] == MODELLED, "record"]
        reasons |= dict.fromkeys(modelled, "its power is modelled, that of others is measured")
    usable = rows[rows["record"].map(reasons).isna()]
    sizes = usable.groupby("block")["record"].transform("size")
    reasons |= dict.fromkeys(usable.loc[sizes < len(arms), "record"], "no run to compare it with in its block")
    whole = [runs[runs["record"].map(reasons).isna()].set_index("block").sort_index() for runs in arms.values()]
    unlike = explain_left_out_blocks(whole, columns=columns) if len(whole[0]) else {}
    reasons |= {record: unlike[block] for runs in whole for block, record in runs["record"].items() if block in unlike}
    return {record: reason for record, reason in reasons.items() if reason}


def _explain_left_out_run(
    run: Mapping[str, Any], columns: Collection[str], values: Collection[str], positive: Collection[str]
) -> str | None:
    """Why a run by itself enters no estimate; None if it may."""
    if how := failed_runs.describe_failure(run, columns):
        return how
    if failed_runs.is_unproven(run):
        return f"{failed_runs.UNPROVEN}: {run['unproven']}"
    if run["overlapped"]:
        return overlap.OVERLAPPED
    if pd.notna(run["resumed_after_epoch"]):
        return "resumed from a checkpoint"
    if run["oversubscribed"]:
        return "oversubscribed: fewer cores than its ranks need"
    if any(pd.isna(run[name]) for name in values):
        empty = [name for name in sorted(columns) if pd.isna(run[name])]
        return f"no {' and no '.join(empty)}" if empty else "no value"  # the latter: divided by 0
    return "no positive value" if any(run[name] <= 0 for name in positive) else None


def find_copied_runs(runs: pd.DataFrame) -> Iterator[list[str]]:
    """The records of each run that stands twice, under two labels or in two folders: a copy is no second run.

    A run is known by its directory's name, its start, its session and all that it measured.
    """
    columns = [name for name in IDENTITY if name in runs]
    if "started_wall_ns" not in columns:
        return
    directory = runs["record"].map(lambda record: str(record).rpartition("/runs/")[2])
    for _, group in runs.assign(_directory=directory).groupby(["_directory", *columns], dropna=False, sort=False):
        if group["record"].nunique() > 1:
            yield list(group["record"])


IDENTITY = ("started_wall_ns", "session", "host", "status", "runtime_s", "load_s", "train_s", "energy_job_j", "loss",
            "final_weights_crc32")  # fmt: skip

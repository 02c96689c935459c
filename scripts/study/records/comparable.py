"""What may be compared with what: the one place that every verdict asks.

A difference between arms is theirs only if nothing else differs between them.

- **Within a block** all but the arms' keys must be alike: code, libraries, data, settings (`ALIKE`), and hosts. Between
  blocks they may differ: a ratio within blocks does not see it. A block that is not alike is left out, with the reason.
- **Hosts** may differ within blocks only if no arm is tied to some: the arms take turns on them, or, as with jobs of a
  cluster, are on ever other ones. They are those of the ranks, which the launching node of a batch job need not be.
- **Runs that were on one host at the same time** took cores, bandwidth and power from each other, and enter nothing.
- **Failures are results** (`failures`): who leaves them out compares survivors. See `survivors_only`.

A column that a table lacks, and a value that is missing, are taken to be alike.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from study.core import cores, fields, units
from study.core.environment import tells
from study.core.errors import StudyError
from study.core.files import parsed_json
from study.core.wording import counted
from study.experiment import autotuning
from study.launch.variables import SWITCHES
from study.machines.queues import LOST_JOB
from study.records.targets import MEASURES as TO_TARGET

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
AT_ONCE = "runs that were on one host at the same time"
OVERLAPPED = "another run was on its host at the same time"
LEAST_APART = 3  # blocks on different hosts, without turns on them, that can show an arm to be tied to some
TIED = 0.5  # of an arm's uses of hosts: up to so many may repeat hosts that the other arm is not on as often
SLEW = 1e-3  # of a duration: by how much a wall clock that is adjusted slowly (at most 500 ppm, adjtime) may be off
FIRST_TIME_NS = 10**6  # starts below are no times of a clock but places in an order, as of tables made by hand
LOST = "lost with a host or a batch job"  # what `is_its_own` is not
NOT_ITS_OWN = ("host_lost",)  # kinds of failure that say nothing about the run's arm
OF_FAILURES = (
    "block",
    "status",
    "failure_kind",
    "failure_phase",
    "failure_message",
    "target_reached",
)
LESS_IS_BETTER = {"s", "J", "J s", "W", "MB", None}  # units of quantities
NO_UNIT = {"epochs_to_target": -1, "gpu_utilisation_pct": 1, "flop_utilisation": 1}  # 1: more is better


def unlike(runs: pd.DataFrame, free: Collection[str] = ()) -> str | None:
    """Why runs of one block, or repeats of one point, cannot be compared: the first of `ALIKE`; None if they can.

    free: columns in which they may differ.
    """
    found = _several(runs.assign(**{_BLOCK: 0}), free)
    return next((what for whats in found.values() for what in whats), None)


def unlike_blocks(rows: pd.DataFrame) -> list[Any]:
    """The blocks of which `unlike` has a reason. rows: with the blocks as index."""
    return list(_several(rows.rename_axis(_BLOCK).reset_index(), ()))


def has_several(runs: pd.DataFrame) -> bool:
    """Whether runs differ in anything that `unlike` looks at: if not, the repeats of each of their points are alike."""
    return any(name in runs and runs[name].nunique() > 1 for name in (*ALIKE, "steering"))


def differences(one: pd.DataFrame, other: pd.DataFrame) -> list[str]:
    """In what of `ALIKE` two sets of runs differ, that are compared though they may: two machines, or two versions."""
    return [
        what
        for column, what in ALIKE.items()
        if column in one and column in other and set(one[column].dropna()) != set(other[column].dropna())
    ]


def left_out(arms: Sequence[pd.DataFrame], free: Collection[str] = (), columns: Collection[str] = ()) -> dict[Any, str]:
    """{block: why it cannot be compared}, of blocks that all arms have. arms: rows with the blocks as index, in order.

    free: as for `unlike`. columns: of the quantity that is compared.
    """
    rows = pd.concat(arms).rename_axis(_BLOCK).reset_index()
    if "record" in rows:
        rows = rows.drop_duplicates("record")  # an arm that is compared with itself
    found = {block: f"its block has {whats[0]}" for block, whats in _several(rows, free).items()}
    for block in _overlapped_blocks(rows):
        found.setdefault(block, f"its block has {AT_ONCE}")
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
MONOTONIC = ["started_monotonic_ns", "boot_id"]  # columns of a time by a host's monotonic clock
# The columns from which `overlapped` tells.
OF_TIMES = ("overlapped", "hosts", "hosts_reason", "started_wall_ns", "started_monotonic_ns", "boot_id", "runtime_s")
# All columns from which `left_out`, `times` and `overlapped` tell.
READ = tuple(dict.fromkeys((
    "machine", "record", "session", "attempt", "steering", "storage_read_mb", "shared_read_mb", "loader", *ALIKE,
    *(key for keys in FREED_BY.values() for key in keys), *SET_BY, *OF_TIMES,
)))  # fmt: skip


def _overlapped_blocks(rows: pd.DataFrame) -> list[Any]:
    """The blocks with runs that were on one host at the same time. rows: with the column `_BLOCK`.

    Where one clock times all runs and no two of them overlap, no block need be looked at: tables of thousands of runs
    have thousands of blocks.
    """
    narrow = rows[[name for name in (_BLOCK, *OF_TIMES) if name in rows]]  # hundreds of columns take long to divide
    has_monotonic = narrow[MONOTONIC].notna().all(axis=1).any() if set(MONOTONIC) <= set(narrow) else False
    if (by_monotonic(narrow) or not has_monotonic) and not overlapped(narrow).any():
        return []
    return [block for block, runs in narrow.groupby(_BLOCK) if overlapped(runs).any()]


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


def read_unlike(arms: Sequence[pd.DataFrame], column: str) -> list[Any]:
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


def steering_text(steering: Mapping[str, str]) -> str:
    """The column ``steering``: the variables as JSON."""
    return json.dumps(dict(sorted(steering.items())))


def _on_other_hosts(arms: Sequence[pd.DataFrame]) -> list[Any]:
    """The blocks in which two arms had different hosts, unless neither arm was tied to some of them.

    An arm on fewer ranks may be on some of the other's hosts only.
    """
    if any("hosts" not in each for each in arms):
        return []
    found: dict[Any, None] = {}
    for place, one in enumerate(arms):
        for other in arms[place + 1 :]:
            pairs = zip(one.index, map(_hosts, one["hosts"]), map(_hosts, other["hosts"]), strict=True)
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


def _hosts(text: Any) -> frozenset[str]:
    return frozenset(text.split()) if isinstance(text, str) else frozenset()


def _places(runs: pd.DataFrame) -> list[frozenset[str]]:
    """The hosts of each run: of one whose hosts are not known, none; of one without the columns, all the same one."""
    if "hosts" not in runs:
        return [_SAME] * len(runs)
    whys = runs["hosts_reason"].notna() if "hosts_reason" in runs else [False] * len(runs)
    return [_hosts(text) or (frozenset() if why else _SAME) for text, why in zip(runs["hosts"], whys, strict=True)]


_SAME = frozenset([""])  # the host of runs in tables that tell none, such as those made by hand


def times(runs: pd.DataFrame) -> pd.DataFrame:
    """``begin`` and ``end`` of each run, in ns, both by one clock.

    By the monotonic clock where all runs were started on one host since it was booted, else by the wall clock. A run
    whose duration is unknown ends when it begins.
    """
    begin, end = _spans(runs)
    return pd.DataFrame({"begin": begin, "end": end}, index=runs.index)


def _spans(runs: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """The columns of `times`, as a report asks for them for each block of each row of its tables."""
    begin = pd.to_numeric(runs["started_monotonic_ns" if by_monotonic(runs) else "started_wall_ns"])
    if "runtime_s" not in runs or not begin.max() >= FIRST_TIME_NS:
        return begin.to_numpy(), begin.to_numpy()
    lasted = np.fmax(pd.to_numeric(runs["runtime_s"]).to_numpy(float, na_value=np.nan), 0)  # 0 where it is unknown
    return begin.to_numpy(), begin.to_numpy() + (lasted * (1 - SLEW) * 1e9).astype("int64")


def by_monotonic(runs: pd.DataFrame) -> bool:
    """Whether the order of runs is known by one monotonic clock, which nobody sets."""
    known = set(MONOTONIC) <= set(runs) and bool(runs[MONOTONIC].notna().all(axis=None))
    return known and runs["boot_id"].nunique() == 1


def overlapped(runs: pd.DataFrame) -> pd.Series:
    """Whether another of the runs was on a host of a run's ranks at the same time.

    Runs of a table that tells no hosts are on the same one. A run whose hosts are not known (``hosts_reason``) is not
    known to be beside another. The column ``overlapped`` has what is known of runs that are not among these. Runs that
    began in the very same nanosecond are not two runs.
    """
    found = runs["overlapped"].eq(True) if "overlapped" in runs else pd.Series(False, index=runs.index)
    if len(runs) < 2 or "started_wall_ns" not in runs:
        return found
    at_once = found.to_numpy(copy=True)
    hosts = _places(runs)
    for host in frozenset().union(*hosts):
        places = [place for place, each in enumerate(hosts) if host in each]
        begins, ends = _spans(runs if len(places) == len(runs) else runs.iloc[places])
        last, until, since = 0, float("-inf"), None
        for number in np.argsort(begins, kind="stable"):
            place, begin, end = places[number], begins[number], ends[number]
            if begin < until and begin != since:
                at_once[[place, last]] = True
            if end > until:
                last, until, since = place, end, begin
    return pd.Series(at_once, index=runs.index)


def failure(run: Mapping[str, Any], columns: Collection[str] = ()) -> str | None:
    """How a run failed, for what is compared; None if it did not. columns: of the quantity that is compared."""
    if run["status"] != "ok":
        return f"failed: {run.get('failure_kind')} in {run.get('failure_phase')}"
    if not set(columns).isdisjoint(TO_TARGET) and run.get("target_reached") in (False,):
        return "missed the target"
    return None


def is_its_own(run: Mapping[str, Any]) -> bool:
    """Whether a failure may be due to the run's arm: not that of a host, or of a batch job that was lost."""
    message = run.get("failure_message")
    lost = isinstance(message, str) and LOST_JOB in message
    return run["status"] == "ok" or not (run.get("failure_kind") in NOT_ITS_OWN or lost)


def own_failures(runs: pd.DataFrame) -> pd.Series:
    """Which runs failed in a way that may be due to their arm or rank count, see `is_its_own`."""
    told = runs[[name for name in ("status", "failure_kind", "failure_message") if name in runs]].to_dict("records")
    return pd.Series([run["status"] != "ok" and is_its_own(run) for run in told], index=runs.index, dtype=bool)


def lost_in_words(lost: int, runs: int) -> str | None:
    """``2 of 3 runs were lost with a host or a batch job``; None if none was."""
    if not lost:
        return None
    return f"{lost} of {counted(runs, 'run')} {'was' if lost == 1 else 'were'} {LOST}"


def failures(arms: Mapping[Any, pd.DataFrame], columns: Collection[str] = ()) -> dict[Any, list[str]]:
    """{arm: how its runs failed}, of those failures that may be due to the arm.

    What ended all arms of a block in the same way was not one of them.
    """
    found = {
        arm: {
            run["block"]: how
            for run in runs[[name for name in OF_FAILURES if name in runs]].to_dict("records")
            if (how := failure(run, columns)) is not None and is_its_own(run)
        }
        for arm, runs in arms.items()
    }
    alike = {
        block
        for block in set.intersection(*(set(each) for each in found.values()))
        if len({each[block] for each in found.values()}) == 1 and "target" not in next(iter(found.values()))[block]
    } if len(found) > 1 else set()  # fmt: skip
    return {arm: [how for block, how in each.items() if block not in alike] for arm, each in found.items()}


def better(column: str) -> int | None:
    """1 if more of a quantity is better, -1 if less is, None if neither is known. column: of runs.csv."""
    if column in NO_UNIT:
        return NO_UNIT[column]
    unit = units.of_column(column)
    if unit in LESS_IS_BETTER and unit:
        return -1
    if unit and (unit.endswith("/s") or unit.endswith("/J")):
        return 1
    if column.endswith(("accuracy", "r2", "correlation")):
        return 1
    return -1 if column == "loss" or column.endswith("_loss") else None


def survivors_only(
    arms: Mapping[Any, pd.DataFrame], best: Any | None = None, columns: Collection[str] = ()
) -> str | None:
    """Why a difference between arms is one of survivors only; None if failures do not speak against it.

    A failed run counts as the worst value: an arm that failed more often than another is not better than it. best: the
    arm that the values have as the better one; None where that cannot be said, and then all must fail equally often.
    columns: of the quantity that is compared.
    """
    if not any(map(len, arms.values())):
        return None
    found = failures(arms, columns)
    share = {arm: len(found[arm]) / max(1, len(runs)) for arm, runs in arms.items()}
    if len(set(share.values())) < 2 or (best is not None and share[best] <= min(share.values())):
        return None
    told = [f"{arm} {counted_failures(found[arm], len(runs))}" for arm, runs in arms.items() if found[arm]]
    return ", ".join(told)


def counted_failures(hows: Sequence[str], runs: int) -> str:
    """``failed in 5 of 8 runs (oom in train)``, ``missed the target in 5 of 8 runs``. hows: of `failure`."""
    parts = {how: how.partition(":") for how in dict.fromkeys(hows)}
    told = []
    for what in dict.fromkeys(each[0] for each in parts.values()):
        number = sum(parts[how][0] == what for how in hows)
        why = ", ".join(rest.strip() for each, _, rest in parts.values() if each == what and rest)
        told.append(f"{what} in {number} of {runs} runs" + (f" ({why})" if why else ""))
    return " and ".join(told)


def same_runs(runs: pd.DataFrame) -> Iterator[list[str]]:
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

"""Durations are of one monotonic clock: nothing subtracts wall times, but for what is declared here with its reason.

The search reads the code: it follows variables within a function and attributes within a file, not results of calls.
"""

import ast
import re
from pathlib import Path

import pytest
from tracked import ours

ROOT = Path(__file__).parents[2]
# What gives a wall time, as source text: clocks, times of files, and our own names of such values.
WALL = re.compile(r"wall|\btime\.time\(|\btime_ns\(\)|mtime|ctime|datetime|timestamp|utcnow")
MEASURED = "where the monotonic clock of a host is 0 by its wall clock, from one moment of both: no duration"
IN_GRAPHS = "TensorFlow's graphs have no other clock; left out where `phases.WallClock` was set"
OLDER = "of runs of before the monotonic times, refused where a clock was set"
OFFSET = "corrects for the offset between two hosts' clocks, or measures it"
# {file: {function: why it subtracts wall times}}
ALLOWED = {
    "workloads/command/events.py": {
        "moment": "a program that tells no monotonic time: its wall time is converted by this host's offset",
    },
    "instruments/phases.py": {
        "wall_at_zero_ns": MEASURED,
        "was_set": "finds a clock that was set",
        "zeros_ns": MEASURED,
        "merge": OFFSET,
        "launch_ns": "the launch on another host's clock, to the uncertainty of their offset",
        "set_clock": "finds a clock that was set",
    },
    "instruments/queue_usage.py": {"merge": OFFSET},
    "instruments/power/telemetry.py": {"_shifted": OFFSET},
    "instruments/power/summary.py": {
        "_windows_until": "a moment of one host's run on another's clock, to the uncertainty of their offset"
    },
    "instruments/timeline/run.py": {"communication_of": OFFSET},
    "instruments/timeline/summary.py": {
        "_microseconds": "epochs by the wall time of the timeline's begin; none where a clock was set"
    },
    "machines/host_check.py": {"_clock": OFFSET},
    "plan.py": {
        "check_times": "refuses files with times in the future",
        "check_read": "a time before a file's, for Snakemake, which compares the times of files",
    },
    "records/ensemble.py": {"_spans": OLDER},
    "records/targets.py": {"_is_consistent": "finds a clock that was set", "_times": OLDER},
    "report/figures/timeline.py": {
        "_in_rows": OLDER,
        "_communication": "by the wall time of the timeline's begin; not drawn where a clock was set",
    },
    "report/trace.py": {
        "edges_of_run": OFFSET,
        "of_wall": "a place on the axis of a picture, from one moment before its first event: no duration",
        "_of_power": MEASURED,
    },
    "backends/tensorflow/input_measures.py": {"noted": IN_GRAPHS},
    "backends/tensorflow/step_measures.py": {"_end": IN_GRAPHS},
    "../show_early.py": {"_is_recent": "whether a page is a minute old: else it is left out, until the next block"},
    "records/run_states.py": {"state": "for how long a run's files did not change, shown to a user; decides nothing"},
}


def functions(path):
    """(name, node) of each innermost function of a file; what is outside of functions has the name ``module``."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    found = [(node.name, node) for node in ast.walk(tree) if isinstance(node, kinds)]
    return [
        *found,
        ("module", ast.Module([node for node in tree.body if not isinstance(node, (*kinds, ast.ClassDef))], [])),
    ]


def walked(node):
    """The nodes in a function, without those of functions in it."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield child
            yield from walked(child)


def tainted(function, attributes=()):
    """The variables of a function that hold wall times, as source text. attributes: of objects, known beforehand."""
    found, before = set(attributes), None
    assigned = [node for node in walked(function) if isinstance(node, (ast.Assign, ast.AnnAssign, ast.NamedExpr))]
    while before != found:
        before = set(found)
        for node in assigned:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            pairs = [pair for target in targets for pair in paired(target, node.value)]
            found |= {ast.unparse(target) for target, value in pairs if value is not None and is_wall(value, found)}
    return found


def paired(target, value):
    """(target, value) one by one, where both are tuples of one length."""
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        return list(zip(target.elts, value.elts, strict=True))
    return [(each, value) for each in (target.elts if isinstance(target, ast.Tuple) else [target])]


def is_wall(node, names=()):
    variables = (each for each in ast.walk(node) if isinstance(each, (ast.Name, ast.Attribute)))
    return bool(WALL.search(ast.unparse(node))) or any(ast.unparse(each) in names for each in variables)


def subtracts_wall(function, attributes=()):
    """Whether a function subtracts wall times, also as ``np.diff`` does."""
    names = tainted(function, attributes)
    for node in walked(function):
        if isinstance(node, (ast.BinOp, ast.AugAssign)) and isinstance(node.op, ast.Sub):
            operands = [node.left, node.right] if isinstance(node, ast.BinOp) else [node.target, node.value]
            if any(is_wall(each, names) for each in operands):
                return True
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("diff") and is_wall(node, names):
            return True
    return False


def places():
    library = ROOT / "scripts" / "study"
    for path in ours((ROOT / "scripts").rglob("*.py")):
        name = path.relative_to(library).as_posix() if library in path.parents else f"../{path.name}"
        of_file = functions(path)
        attributes = {each for _, node in of_file for each in tainted(node) if "." in each}
        for function, node in of_file:
            if subtracts_wall(node, attributes):
                yield name, function


@pytest.mark.slow
def test_no_duration_is_of_wall_clocks():
    found = sorted(set(places()))
    assert [place for place in found if place[1] not in ALLOWED.get(place[0], {})] == [], "use a monotonic clock"
    assert sorted((file, each) for file, names in ALLOWED.items() for each in names if (file, each) not in found) == []


@pytest.mark.parametrize(
    ("source", "is_found"),
    [
        ("begun = time.time()\n    return time.time() - begun", True),
        ("begun = time.monotonic()\n    return time.monotonic() - begun", False),
        ("begun = now()\n    return (edge['wall_ns'] - begun) / 1e9", True),
        ("then = path.stat().st_mtime\n    return now - then", True),
        ("wall, passed = time.time_ns(), time.monotonic_ns()\n    return time.monotonic_ns() - passed", False),
        ("return np.diff(rows['wall_ns'])", True),
        ("left = deadline_wall\n    left -= 5", True),
    ],
)
def test_the_search_finds_differences_of_wall_times(source, is_found):
    (function,) = ast.parse(f"def one():\n    {source}\n").body
    assert subtracts_wall(function) == is_found

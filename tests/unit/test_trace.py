"""A run as one trace: its parts on one time axis, what is missing is told, and what is damaged is refused."""

import gzip
import json
import resource
import time

import pytest

from study.contrib.exports import perfetto
from study.core.errors import StudyError
from study.instruments.power.sampler import COLUMNS

WALL, ZEROS = 1_700_000_000_000_000_000, {"a": 1_699_999_999_000_000_000, "b": 1_699_999_000_000_000_000}
HEADER = ",".join(COLUMNS) + "\n"


def edge(phase, which, rank, host, at_ms):
    wall = WALL + at_ms * 1_000_000
    return {
        "phase": phase,
        "edge": which,
        "rank": rank,
        "host": host,
        "wall_ns": wall,
        "monotonic_ns": wall - ZEROS[host],
    }


def begin_run(folder, edges, name="phases.jsonl"):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(each) + "\n" for each in edges))


@pytest.fixture
def two_hosts(tmp_path):
    """A run on two hosts whose monotonic clocks are far apart; its second rank was killed while it trained."""
    edges = [edge("load", "begin", 0, "a", 0), edge("load", "end", 0, "a", 10), edge("train", "begin", 0, "a", 10),
             edge("load", "begin", 1, "b", 1), edge("load", "end", 1, "b", 5), edge("train", "begin", 1, "b", 6),
             edge("train", "end", 0, "a", 50)]  # fmt: skip
    begin_run(tmp_path, edges)
    return tmp_path


def written(folder, name="trace.json"):
    made = perfetto.write_trace(folder, folder / name)
    raw = (folder / name).read_bytes()
    content = json.loads(gzip.decompress(raw) if name.endswith(".gz") else raw)
    assert len(content["traceEvents"]) == made.events
    assert content["otherData"]["absent"] == made.absent
    for event in content["traceEvents"]:  # what the format asks of each kind
        assert {"ph", "pid"} <= set(event) and event["ph"] in "XBECM"
        assert event["ph"] == "M" or isinstance(event["ts"], int | float)
        assert event["ph"] != "X" or event["dur"] >= 0
        assert event["ph"] != "C" or all(isinstance(value, float) for value in event["args"].values())
    for event in content["traceEvents"]:
        event["ts"] = event.get("ts", 0) - perfetto.LEAD_NS // 1000  # from the first phase on
    return content["traceEvents"], made


def test_hosts_share_one_axis_and_a_phase_without_an_end_says_so(two_hosts):
    events, made = written(two_hosts)
    slices = {(each["name"], each["pid"]): (each["ts"], each["dur"]) for each in events if each["ph"] == "X"}
    assert slices == {
        ("load", 0): (0, 10_000),
        ("train", 0): (10_000, 40_000),
        ("load", 1): (1000, 4000),
        ("train (no end)", 1): (6000, 44_000),
    }
    assert set(made.absent) == {"epochs", "communication", "power"}
    assert "no sensor was read" in made.absent["power"]


def test_a_run_that_goes_on_is_read_from_its_ranks(tmp_path):
    begin_run(tmp_path, [edge("load", "begin", 0, "a", 0)], "ranks/phases-0.jsonl")
    with open(tmp_path / "ranks/phases-0.jsonl", "a") as handle:
        handle.write('{"phase": "lo')  # killed while it wrote
    events, _ = written(tmp_path, "trace.json.gz")
    assert [each["name"] for each in events if each["ph"] == "X"] == ["load (no end)"]


def test_all_parts_with_odd_names(two_hosts):
    odd = 'a, "b" \u00e4\u4e2d\n'
    begin = WALL + 20_000_000 - ZEROS["a"]
    timeline = [
        {"name": "process_name", "ph": "M", "pid": 0, "args": {"name": odd}},
        {"name": "clock", "ph": "M", "pid": 0, "args": {"start_time_since_epoch_in_micros": WALL // 1000 + 30_000}},
        {"ph": "B", "name": "ALLREDUCE", "ts": 5, "pid": 0},
        {"ph": "E", "ts": 9, "pid": 0},
        {"ph": "E", "ts": "late", "pid": 0},
    ]
    (two_hosts / "timeline.json.gz").write_bytes(gzip.compress(json.dumps(timeline).encode()))
    (two_hosts / "history.csv").write_text(
        f"epoch,time_s,learning_rate,begin_wall_ns,begin_monotonic_ns\n1,0.01,0.1,{WALL},{begin}\n"
    )
    rows = [
        f"{WALL + ms * 10**6},{WALL + ms * 10**6 - ZEROS['b']},b,rapl,cpu,package-0,,,{ms * 0.1},,,,,\n"
        for ms in (0, 10)
    ]
    (two_hosts / "telemetry.csv").write_text(HEADER + "".join(rows))
    events, made = written(two_hosts)
    assert made.absent == {}
    at = {each.get("name"): each["ts"] for each in events if each["ph"] in "XB"}
    assert (at["epoch 1"], at["ALLREDUCE"]) == (20_000, 30_005)
    assert odd in {each["args"]["name"] for each in events if each["ph"] == "M"}
    (power,) = (each for each in events if each["ph"] == "C")
    assert (power["ts"], power["args"]) == (10_000, {"W": 100.0})  # 1 J in 10 ms


@pytest.mark.parametrize(("name", "content"), [("history.csv", b"a\n1\n"), ("telemetry.csv", b"a,b\n1,2\n")])
def test_a_damaged_part_is_refused_with_its_name(two_hosts, name, content):
    (two_hosts / name).write_bytes(content)
    with pytest.raises(StudyError, match=name):
        perfetto.write_trace(two_hosts, two_hosts / "trace.json")
    assert not (two_hosts / "trace.json").exists()


def test_a_hundred_thousand_events_take_as_long_as_their_json_and_200_mb(two_hosts):
    timeline = [
        {"name": "process_name", "ph": "M", "pid": 0, "args": {"name": "tensor"}},
        {"name": "clock", "ph": "M", "pid": 0, "args": {"start_time_since_epoch_in_micros": WALL // 1000}},
        *({"ph": phase, "name": "ALLREDUCE", "ts": n, "pid": 0} for n in range(50_001) for phase in "BE"),
    ]
    (two_hosts / "timeline.json.gz").write_bytes(gzip.compress(json.dumps(timeline).encode()))
    before, memory = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    made = perfetto.write_trace(two_hosts, two_hosts / "trace.json.gz")
    between = time.process_time()
    for each in timeline:
        json.dumps(each)
    assert between - before < 20 * (time.process_time() - between)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < 200_000  # KiB
    assert made.events > 100_000

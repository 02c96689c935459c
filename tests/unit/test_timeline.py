"""Horovod's timeline: every number by hand, damaged files, the libraries' names, and gigabytes in flat memory."""

import json
import random
import subprocess
import sys
import time

import numpy as np
import pytest
import timelines
from hypothesis import given, settings
from hypothesis import strategies as st

from study.core.paths import ROOT
from study.instruments.timeline import PENDING, Bins, Total, Union, summarize_timeline
from study.instruments.timeline_events import Events


@pytest.fixture
def whole(tmp_path):
    return timelines.write(tmp_path / "timeline.json", timelines.run())


@pytest.mark.parametrize("library", ["GLOO", "MPI", "NCCL"])
def test_every_number_of_a_run_by_hand(tmp_path, library):
    path = timelines.write(tmp_path / "timeline.json", timelines.run(library=library))
    found = summarize_timeline(path, timelines.epoch_edges_ns()).summary
    assert found["broadcast_span_s"] == pytest.approx(2.005)
    assert found["broadcast_skew_s"] == pytest.approx(2.0)
    assert found["broadcast_negotiation_s"] == pytest.approx(2.0)
    assert found["broadcast_transfer_s"] == pytest.approx(0.005)
    step = {"negotiation_s": 0.01, "operation_s": 0.021, "transfer_s": 0.019, "copies_s": 0.002}
    assert found["allreduce"] == pytest.approx({name: 6 * seconds for name, seconds in step.items()})
    assert found["allreduce_epochs"] == [pytest.approx({name: 3 * s for name, s in step.items()})] * 2
    assert (found["allreduce_operations"], found["allreduce_tensors"]) == (6, 30)
    assert found["allreduce_first_s"] == pytest.approx(0.021)
    assert found["allreduce_mean_mb"] == found["allreduce_largest_mb"] == pytest.approx(5 * 4000 / 1e6)
    assert found["slowest_rank"] == 1
    assert found["slowest_rank_share"] == pytest.approx(2 / (2 + 6 * 0.01))
    assert (found["dropped_events"], found["lost_bytes"]) == (0, 0)


def test_activity_over_time_adds_up(whole):
    found = summarize_timeline(whole, timelines.epoch_edges_ns())
    busy = found.activity.drop(columns=["wall_ns", "bin_s"]).mul(found.activity["bin_s"], axis=0).sum()
    assert busy["allreduce_transfer"] == pytest.approx(found.summary["allreduce"]["transfer_s"])
    assert busy["broadcast_negotiation"] == pytest.approx(found.summary["broadcast_negotiation_s"])
    first = found.activity["wall_ns"].iloc[0] / 1000 - timelines.START_US
    assert 0 <= first <= 1e6 * found.activity["bin_s"].iloc[0]
    assert found.activity.drop(columns=["wall_ns", "bin_s"]).to_numpy().max() <= 1 + 1e-9


def test_unfused_operations_count_one_by_one(tmp_path):
    events = [*timelines.allreduce([1], 0, 1, 5, 6), *timelines.allreduce([2], 6, 7, 9, 10)]
    found = summarize_timeline(timelines.write(tmp_path / "t.json", events)).summary
    assert (found["allreduce_operations"], found["allreduce_tensors"]) == (2, 2)
    assert found["allreduce_first_s"] == pytest.approx(6e-6), "and not the second, of 4 us"


def test_fused_operations_that_nccl_overlaps_stay_apart(tmp_path):
    """The operations of NCCL are begun one after the other, and their activities are logged later."""
    events = [timelines.begin("ALLREDUCE", 0, pid) for pid in (1, 2)]
    events += [timelines.begin("ALLREDUCE", 1, pid) for pid in (3, 4)]
    for at, pids in ((2, (1, 2)), (5, (3, 4))):
        events += [timelines.begin("NCCL_ALLREDUCE", at, pid) for pid in pids]
        events += [timelines.end(at + 2, pid) for pid in pids]
        events += [timelines.end(at + 3, pid, {"dtype": "float16", "shape": "[1000]"}) for pid in pids]
    found = summarize_timeline(timelines.write(tmp_path / "t.json", events)).summary
    assert (found["allreduce_operations"], found["allreduce_tensors"]) == (2, 4)
    assert found["allreduce_largest_mb"] == pytest.approx(2 * 2000 / 1e6)


def test_without_ready_ranks_nobody_is_called_slow(tmp_path):
    """Horovod's response cache leaves the ranks out of all but a tensor's first negotiation."""
    events = [
        timelines.begin("NEGOTIATE_ALLREDUCE", 0, 1),
        timelines.end(9, 1),
        *timelines.allreduce([1], 9, 10, 11, 12),
    ]
    found = summarize_timeline(timelines.write(tmp_path / "t.json", events)).summary
    assert (found["negotiations_with_ranks"], found["slowest_rank"], found["slowest_rank_share"]) == (0, None, None)
    assert found["allreduce"]["negotiation_s"] == pytest.approx(9e-6)


def test_a_run_that_never_communicated(tmp_path):
    found = summarize_timeline(tmp_path / "none.json.gz")
    assert found.summary["broadcast_span_s"] is None
    assert found.summary["allreduce_operations"] == 0
    assert found.activity.empty
    json.dumps(found.summary, allow_nan=False)
    for name, lost in (("empty.json", 0), ("empty.json.gz", 1)):
        (tmp_path / name).touch()
        events = Events(tmp_path / name)
        assert (list(events), events.lost_bytes) == ([], lost), "only a timeline with a begin is compressed"


@given(cut=st.integers(0, 20_000))
@settings(max_examples=60, deadline=None)
def test_a_file_cut_off_anywhere_loses_its_end_only(tmp_path_factory, cut):
    text = timelines.text(timelines.run())
    path = tmp_path_factory.mktemp("cut") / "t.json"
    path.write_text(text[: max(0, len(text) - cut)])
    kept = list(Events(path))
    assert kept == json.loads(text)[: len(kept)]
    assert len(kept) >= path.read_text().count("}}") + path.read_text().count('"ts"') - 3 - path.read_text().count(
        '"args"'
    )
    summarize_timeline(path)


@pytest.mark.slow
@given(seed=st.integers(0, 10_000))
@settings(max_examples=60, deadline=None)
def test_a_damaged_file_gives_what_is_whole(tmp_path_factory, seed):
    text, chance = (bytearray(timelines.text(timelines.run()).encode()), random.Random(seed))
    for _ in range(5):
        at = chance.randrange(200, len(text) - 40)
        text[at : at + chance.randrange(1, 40)] = bytes(chance.randrange(256) for _ in range(chance.randrange(0, 40)))
    path = tmp_path_factory.mktemp("damaged") / "t.json"
    path.write_bytes(text)
    whole = sum(1 for _ in Events(path))
    assert whole > 0.8 * len(json.loads(timelines.text(timelines.run())))
    found = summarize_timeline(path, timelines.epoch_edges_ns()).summary
    json.dumps(found, allow_nan=False)


def test_damage_is_counted(tmp_path):
    text = timelines.text(timelines.run())
    path = tmp_path / "t.json"
    path.write_text(text.replace('{"ph": "E"', '{"ph": E"', 1))
    found = summarize_timeline(path).summary
    assert found["lost_bytes"] > 0
    assert found["dropped_events"] > 0
    assert found["broadcast_span_s"] == pytest.approx(2.005)


def test_json_that_is_not_horovod_s(tmp_path):
    path = tmp_path / "t.json"
    path.write_text('[{"ph": "B"},\n{"ph": "E", "ts": 3, "pid": 1},{"name": "x"},'
                    '{"ph": "X", "name": "a", "ts": 1, "pid": 9},{"ph": "M", "name": "x", "args": 3}]')  # fmt: skip
    found = summarize_timeline(path).summary
    assert found["dropped_events"] == 5


intervals = st.lists(st.tuples(st.integers(0, 300), st.integers(0, 40)), max_size=60)


@given(intervals=intervals)
def test_a_union_is_what_brute_force_counts(intervals):
    total = Total(edges=[0, 100, 150, 340])
    union = Union(total)
    for begin, length in sorted(intervals, key=sum):
        union.add(begin, begin + length)
    union.close()
    covered = np.zeros(400, dtype=bool)
    for begin, length in intervals:
        covered[begin : begin + length] = True
    assert total.length == covered.sum()
    assert total.by_window.tolist() == [covered[0:100].sum(), covered[100:150].sum(), covered[150:340].sum()]


def test_a_union_of_many_parts_is_handed_on_in_order():
    parts = []
    union = Union(lambda begin, end: parts.append((begin, end)))
    for at in range(0, 40 * PENDING, 10):
        union.add(at, at + 5)
        union.add(at, at + 5)
    assert len(parts) > PENDING
    union.close()
    assert parts == [(at, at + 5) for at in range(0, 40 * PENDING, 10)]


@given(intervals=st.lists(st.tuples(st.floats(0, 1e8), st.floats(0, 1e6)), max_size=30))
def test_bins_keep_all_busy_time(intervals):
    bins = Bins(1000.0)
    for begin, length in intervals:
        bins(begin, begin + length)
    assert bins.busy.sum() == pytest.approx(sum(end - begin for begin, end in ((b, b + n) for b, n in intervals)))


def large(path, megabytes):
    """A timeline of about that size: an epoch of 64 tensors repeated, 512 ranks in each tensor's negotiation."""
    ranks, tensors = 512, 64
    step = "".join(
        "," + json.dumps(e) for e in timelines.run(ranks, epochs=1, steps=1, tensors=tensors) if e["ph"] != "M"
    )
    steps = int(megabytes * 1e6 / len(step)) + 1
    with open(path, "w") as handle:
        handle.write(timelines.HEAD + json.dumps(timelines.tensor(1, "a")))
        for _ in range(steps):
            handle.write(step)
        handle.write("]")
    return steps


PEAK = """
import json, sys
from study.instruments.counters import read_peak_memory_mb
from study.instruments.timeline import summarize_timeline
found = summarize_timeline(sys.argv[1])
print(json.dumps([read_peak_memory_mb(), found.summary]))
"""


def measured(path):
    line = [sys.executable, "-c", PEAK, str(path)]
    begun = time.monotonic()
    done = subprocess.run(line, capture_output=True, text=True, check=True, env={"PYTHONPATH": str(ROOT / "scripts")})
    return time.monotonic() - begun, *json.loads(done.stdout)


@pytest.mark.slow
def test_memory_stays_flat_on_a_large_file(tmp_path, capsys):
    """As large a part of a 3,072-rank timeline as a test can make; a tenth of it needs as much memory."""
    small, big = tmp_path / "small.json", tmp_path / "big.json"
    large(small, 30)
    steps = large(big, 310)
    assert big.stat().st_size > 300e6
    _, small_mb, _ = measured(small)
    seconds, big_mb, found = measured(big)
    with capsys.disabled():
        print(f" {big.stat().st_size / 1e6:.0f} MB at {big.stat().st_size / 1e6 / seconds:.0f} MB/s, ", end="")
        print(f"peak {big_mb:.0f} MB ({small_mb:.0f} MB on a tenth)", end=" ")
    assert big_mb < small_mb + 20
    assert found["allreduce_operations"] == steps
    assert found["lost_bytes"] == 0

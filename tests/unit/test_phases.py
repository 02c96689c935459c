"""The phase log: what is written, and what is told of a log that ends early."""

import json
from types import SimpleNamespace

import pytest

from study.instruments import phases


def edge(phase, kind, rank, seconds):
    return {
        "phase": phase,
        "edge": kind,
        "rank": rank,
        "host": "n1",
        "wall_ns": int(seconds * 1e9),
        "monotonic_ns": int(seconds * 1e9) + 5,
    }


LOG = [
    edge("load", "begin", 0, 1.0),
    edge("load", "begin", 1, 1.1),
    edge("load", "end", 0, 3.0),
    edge("load", "end", 1, 4.1),
    edge("train", "begin", 0, 5.0),
]


def test_both_edges_are_logged_once_with_rank_host_and_clocks(tmp_path):
    log = phases.PhaseLog(tmp_path / "ranks" / "p.jsonl", 3, "n7")
    with log("load"):
        pass
    first, last = phases.read_edges(tmp_path / "ranks" / "p.jsonl")
    assert (first["phase"], first["edge"], last["edge"], first["rank"], first["host"]) == (
        "load",
        "begin",
        "end",
        3,
        "n7",
    )
    assert last["monotonic_ns"] >= first["monotonic_ns"]
    assert set(first) == {"phase", "edge", "rank", "host", "wall_ns", "monotonic_ns"}


def test_an_error_leaves_the_phase_open(tmp_path):
    log = phases.PhaseLog(tmp_path / "p.jsonl", 0, "n1")
    with pytest.raises(ValueError, match="stop"), log("load"):
        raise ValueError("stop")
    assert [edge["edge"] for edge in phases.read_edges(tmp_path / "p.jsonl", is_merged=False)] == ["begin"]


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        ([], (None, None)),
        (LOG[:2], ("load", 1)),
        (LOG[:3], ("load", 1)),
        (LOG[:4], ("after load", 1)),
        (LOG, ("train", 0)),
    ],
)
def test_where_a_log_ends(log, expected):
    assert phases.find_last_phase(log) == expected


def test_the_zero_of_the_clock_is_that_of_the_fastest_reading(monkeypatch):
    readings = iter([0, 50, 100, 200, 308, 202, *[300, 400, 400] * 8])
    clocks = dict.fromkeys(("monotonic_ns", "time_ns"), readings.__next__)
    monkeypatch.setattr(phases, "time", SimpleNamespace(**clocks))
    assert phases.measure_zero_ns() == 308 - 201


def test_merge_orders_by_wall_time_and_drops_a_line_cut_off(tmp_path):
    (tmp_path / "a").write_text("".join(json.dumps(e) + "\n" for e in LOG if e["rank"] == 0) + '{"phase": "tr')
    (tmp_path / "b").write_text("".join(json.dumps(e) + "\n" for e in LOG if e["rank"] == 1))
    phases.merge_logs([tmp_path / "a", tmp_path / "b"], tmp_path / "merged")
    assert phases.read_edges(tmp_path / "merged") == LOG


def test_the_rank_that_others_wait_for():
    log = [edge("load", "begin", rank, 1.0 + rank / 10) for rank in range(3)]
    log += [edge("stage", "begin", 0, 1.5), edge("stage", "begin", 1, 1.6)]  # rank 2 is to load what they wait for
    assert phases.find_furthest_behind(log) == ("load", 2)
    late = [edge("load", "begin", 0, 1), edge("stage", "begin", 0, 1.1), edge("load", "begin", 1, 2)]
    assert phases.find_furthest_behind(late) == ("load", 1), "the reader was the last to begin"
    log += [edge("stage", "end", rank, 3) for rank in range(2)] + [edge("load", "end", rank, 4) for rank in range(3)]
    assert phases.find_furthest_behind(log) == (None, None)
    log += [edge("broadcast", "begin", 1, 5), edge("preprocess", "begin", 0, 4.5)]
    assert phases.find_furthest_behind(log) == ("preprocess", 0)

"""Successive halving without ranks: threads stand for members; the decision is one, for all and after a restart."""

import io
import json

import pytest
from test_ensembles import each_in_a_thread, planned, streams, taken

from study.backends.tensorflow.input import batches
from study.core.errors import StudyError
from study.ensembles.halving import Halving, ranked
from study.experiment.ensemble import halving_epochs
from study.instruments import heartbeats
from study.records.tidy import read_runs

FOUR = {"ensemble": 4, "epochs": 5}


def halvings(folder, members, epochs, **other):
    return [Halving(folder / "halving", folder, epochs, members, own, **other) for own in range(members)]


def stay(found, epoch, losses):
    """The members that train on after an epoch. losses: of those that come to its end, by member."""
    work = list(losses.items())
    results = each_in_a_thread(lambda each: found[each[0]].goes_on(epoch, each[1]), work)
    return [member for (member, _), goes_on in zip(work, results, strict=True) if goes_on]


# The grid key


def test_a_number_and_a_text_are_one_run():
    (number,), (text,) = planned(halving_epochs=1), planned(halving_epochs="1")
    assert number.parameters == text.parameters
    assert number["halving_epochs"] == "1"
    assert "+halving_epochs~1" in number.directory
    (several,) = planned(**FOUR, halving_epochs="1 3")
    assert halving_epochs(several.parameters) == [1, 3]
    (never,) = planned()
    assert halving_epochs(never.parameters) == []
    assert "halving" not in never.directory
    assert len(planned(**FOUR, halving_epochs=["none", 1, "1 3"])) == 3, "an axis, as all keys"


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"halving_epochs": "one"}, "'one': expected epochs from 1 on in ascending order, separated by blanks"),
        ({"halving_epochs": ""}, "'': expected epochs from 1 on in ascending order"),
        ({"halving_epochs": 0}, "'0': expected epochs from 1 on in ascending order"),
        ({**FOUR, "halving_epochs": "3 1"}, "'3 1': expected epochs from 1 on in ascending order"),
        ({**FOUR, "halving_epochs": "2 2"}, "'2 2': expected epochs from 1 on in ascending order"),
        ({"halving_epochs": 1, "tuning": {"a": {"prefetch_blocks": 2}}}, "arms are compared by steady throughput"),
        ({"halving_epochs": 2}, "2 is not before the last of 2 epochs; give smaller ones, or more epochs"),
        (
            {**FOUR, "halving_epochs": "1 2 3"},
            "1 2 3: 3 halvings, but 4 members can be halved 2 times at most; give fewer",
        ),
        (
            {"halving_epochs": "1 2", "epochs": 8},
            "1 2: 2 halvings, but 2 members can be halved once at most; give fewer",
        ),
        ({"ensemble": 1, "halving_epochs": 1}, "1: one member has no worse half; use none, or a larger ensemble"),
        (
            {"halving_epochs": 1, "measure": "peak_throughput"},
            "1: members are compared by their loss, and this run trains nothing",
        ),
        (
            {"halving_epochs": 1, "compute": "simulated", "simulated_samples_per_s": 5.0},
            "1: members are compared by their loss, and this run trains nothing",
        ),
        (
            {"halving_epochs": 1, "input_sharing": "tf_data_service", "preprocessing_ranks": 1},
            "1: with tf_data_service members may get other samples than the others",
        ),
    ],
    ids=str,
)
def test_what_cannot_be_halved_is_refused(changed, words):
    with pytest.raises(StudyError) as refused:
        planned(**changed)
    assert f"runs[0].halving_epochs: {words}" in str(refused.value)


def test_the_table_of_runs_gives_the_epochs_as_text():
    """Also where all runs have a single one, which looks like a number."""
    frame = read_runs(io.StringIO("benchmark,status,record,halving_epochs\nlenet,ok,a/record.json,1\n"))
    assert frame["halving_epochs"].tolist() == ["1"]


# Decisions


@pytest.mark.parametrize(
    ("losses", "order"),
    [
        ([0.3, 0.1, 0.2], [1, 2, 0]),
        ([0.2, 0.1, 0.1], [1, 2, 0]),
        ([None, 0.1, float("nan"), -5.0], [3, 1, 0, 2]),
        ([float("inf"), float("-inf"), 1e300], [2, 0, 1]),
    ],
)
def test_members_are_ranked_by_loss_then_number(losses, order):
    assert ranked(dict(enumerate(losses))) == order


def test_half_of_the_members_that_are_left_stops_each_time(tmp_path):
    found = halvings(tmp_path, 5, [1, 3, 4])
    assert stay(found, 1, {0: 0.5, 1: 0.1, 2: 0.4, 3: 0.3, 4: 0.2}) == [1, 3, 4]
    assert all(found[member].goes_on(2, 9.0) for member in (1, 3, 4)), "no halving then"
    assert stay(found, 3, {1: 0.3, 3: 0.1, 4: 0.2}) == [3, 4]
    assert stay(found, 4, {3: 0.1, 4: 0.1}) == [3], "of equal ones the first"
    assert found[3].goes_on(5, 9.0)


def test_without_halving_nothing_is_written(tmp_path):
    (found,) = halvings(tmp_path, 1, [])
    found.begin()
    found.fail()
    assert found.goes_on(1, 0.5) and not found.has_stopped(1)
    assert list(tmp_path.iterdir()) == []


def test_nobody_waits_for_a_member_that_has_failed(tmp_path):
    found = halvings(tmp_path, 4, [2])
    found[0].fail()
    assert stay(found, 2, {1: 0.1, 2: 0.3, 3: 0.2}) == [1, 3], "the failed one is in the worse half"


def test_a_member_that_fails_after_its_halving_has_taken_part_in_it(tmp_path):
    found = halvings(tmp_path, 2, [1, 2])
    (tmp_path / "halving").mkdir()
    found[0]._loss(1, 0).write_text('{"loss": 0.1}')
    found[0].fail()
    assert not found[1].goes_on(1, 0.2)


def test_a_lost_member_is_in_the_worse_half_also_if_it_comes_late(tmp_path):
    found = halvings(tmp_path, 4, [1], patience_s=0.3)
    assert stay(found, 1, {0: 0.9, 1: 0.1, 2: 0.5}) == [1, 2]
    assert not found[3].goes_on(1, 0.0), "the decision is made"
    assert found[3].has_stopped(1) and not found[1].has_stopped(1)


def test_what_one_member_decides_all_do(tmp_path):
    """Two of them may have seen different losses."""
    found = halvings(tmp_path, 2, [1])
    found[0]._decide(1, {0: 0.5, 1: None})
    found[1]._decide(1, {0: 0.5, 1: 0.1})
    assert [each._staying(1) for each in found] == [[0], [0]]
    assert [path.name for path in (tmp_path / "halving").iterdir()] == ["decision-000001.json"]
    assert json.loads(found[0]._decision(1).read_text())["losses"] == {"0": 0.5, "1": None}


def test_a_restart_takes_the_same_decision(tmp_path):
    """Whatever it trains up to there; and whoever failed takes part again until it is made."""
    first = halvings(tmp_path, 4, [1, 2])
    assert stay(first, 1, {0: 0.1, 1: 0.2, 2: 0.3, 3: 0.4}) == [0, 1]
    first[0].fail()
    again = halvings(tmp_path, 4, [1, 2])
    for each in again:
        each.begin()
    assert [each.has_stopped(1) for each in again] == [False, False, True, True]
    assert stay(again, 1, {0: 0.4, 1: 0.3, 2: 0.2, 3: 0.1}) == [0, 1]
    assert stay(again, 2, {0: 0.1, 1: 0.2}) == [0]


def test_a_damaged_decision_is_told_by_its_file(tmp_path):
    found, _ = halvings(tmp_path, 2, [1])
    (tmp_path / "halving").mkdir()
    found._decision(1).write_text('{"staying": [0')
    with pytest.raises(StudyError, match=r"decision-000001.json: not valid JSON"):
        found.goes_on(1, 0.5)


def test_silence_is_the_time_without_any_heartbeat(tmp_path, monkeypatch):
    clock, beat = [0.0], [5.0]
    monkeypatch.setattr(heartbeats.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(heartbeats, "latest", lambda folder: beat[0])
    silence = heartbeats.Silence(tmp_path, 10.0)
    for second in range(30):
        clock[0], beat[0] = float(second), float(second // 6)
        assert not silence.is_long
    for second in range(30, 60):
        clock[0] = float(second)
        assert silence.is_long == (second > 24 + 10)


# Samples


def test_a_member_that_stops_makes_no_more_samples_that_nobody_needs():
    first, second = streams("duplicated", 2, 2, 4)

    def some(stream):
        if stream is second:
            return taken(stream)
        with stream.flowing():
            return [next(iter(batches(stream, 7)))]

    each_in_a_thread(some, [first, second])
    assert first.measures()["samples_preprocessed"] < 50 < second.measures()["samples_preprocessed"] == 100

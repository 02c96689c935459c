"""How many ranks a job deserves, by what was measured."""

import pytest
from examples import expand

from study.compare import rank_answer
from study.records.tidy import runs_frame

MINUTE_NS = 60 * 10**9


@pytest.fixture
def answers(make_recorded, tmp_path):
    """The answers for runs of the given times: ``answers({1: [10.0, 11.0], 2: [6.0, 6.1]})``, by blocks."""

    def of(times, disturbed=0, failed=(), some=(), kind="oom", loss=None, own=None, crowded=(), **keys):
        repeats = max(map(len, times.values()))
        planned = expand(**{"gpus": sorted(times), "epochs": 8, "repeats": repeats, **keys})
        there = [run for run in planned if run.repeat <= len(times[run.gpus])]
        for place, run in enumerate(sorted(there, key=lambda run: (run.repeat, run.gpus))):
            make_recorded(run, runtime=times[run.gpus][run.repeat - 1], started=place * MINUTE_NS)
        runs = runs_frame(there, {}, tmp_path / "local")
        runs.loc[runs["gpus"].isin(failed), ["status", "runtime_s"]] = ["failed", float("nan")]
        runs["oversubscribed"] = runs["gpus"].isin(crowded)
        for gpus, values in (loss or {}).items():
            runs.loc[runs["gpus"] == gpus, "test_loss"] = values
        for name, values in (own or {}).items():
            runs[name] = runs["gpus"].map(values)
        for gpus, repeat in some:
            one = (runs["gpus"] == gpus) & (runs["repeat"] == repeat)
            runs.loc[one, ["status", "runtime_s", "failure_kind", "failure_phase"]] = ["failed", None, kind, "train"]
        return rank_answer.answer_workloads(runs.assign(disturbed=[place < disturbed for place in range(len(runs))]))

    return of


def test_a_doubling_that_uses_half_of_its_ranks_is_worth_them(answers):
    (found,) = answers({1: [20.0, 22.0, 21.0], 2: [12.5, 13.75, 13.125]})
    assert (found.series, found.ranks, len(found.records)) == ("nt3", 2, 6)
    assert found.sentence == (
        "2 ranks get the work done 1.6 times as fast as 1 (95 % interval 1.6 to 1.6, 3 blocks); 60 % of the added "
        "rank is used. More than 2 were not measured, and nothing is said about them."
    )


def test_the_first_doubling_that_is_not_worth_its_ranks_ends_it(answers):
    (found,) = answers({1: [20.0] * 3, 2: [12.0] * 3, 4: [10.0] * 3, 8: [5.0] * 3})
    assert found.ranks == 2
    assert found.sentence == (
        "4 ranks get the work done 1.2 times as fast as 2 (95 % interval 1.2 to 1.2, 3 blocks); 20 % of the 2 "
        "added ranks is used."
    )


def test_two_doublings_at_once_are_judged_as_two(answers):
    assert answers({1: [20.0] * 3, 4: [10.0] * 3})[0].ranks == 1, "2 is less than 1.5 ** 2"
    assert answers({1: [20.0] * 3, 4: [8.0] * 3}, loader="chunked")[0].ranks == 4


def test_ranks_without_a_core_each_are_left_out(answers):
    (answer,) = answers({1: [20.0] * 3, 2: [12.0] * 3, 4: [7.0] * 3}, crowded=[4])
    assert answer.ranks == 2
    assert "Nothing is said about 4: its ranks had fewer cores than they need (oversubscribed)." in answer.sentence
    assert "4 ranks get" not in answer.sentence


def test_ranks_whose_runs_failed_do_not_end_it(answers):
    times = {1: [20.0] * 3, 2: [12.0] * 3, 4: [9.0] * 3, 8: [4.0] * 3}
    (found,) = answers(times, failed=[4])
    assert found.ranks == 8, "3 times as fast as 2 is more than 1.5 ** 2"
    assert found.sentence.startswith("8 ranks get the work done 3 times as fast as 2 (")
    assert found.sentence.endswith(" Nothing is said about 4: no successful runs to compare.")
    (found,) = answers(times, failed=[1, 8], loader="chunked")
    assert found.ranks == 2 and "4 ranks get the work done 1.33 times as fast as 2" in found.sentence
    assert found.sentence.endswith(" Nothing is said about 1, 8: no successful runs to compare.")
    assert answers(times, failed=[1, 2, 4], loader="parallel") == []


def test_ranks_that_fail_more_often_are_not_called_worth_it(answers):
    """4 ranks are 12 / 7 = 1.71 times as fast as 2, but only in the two of three runs that did not fail.

    8 take 4 s, so 3 times less than 2, and none fails: two doublings of 1.73. A host that was lost is no failure.
    """
    times = {1: [20.0] * 3, 2: [12.0] * 3, 4: [7.0] * 3}
    (found,) = answers(times, some=[(4, 2)])
    assert found.ranks == 2
    assert found.sentence.startswith("2 ranks get the work done 1.67 times as fast as 1")
    assert found.sentence.endswith("Not 4, whatever its times: 4 ranks failed in 1 of 3 runs (oom in train).")
    (found,) = answers({**times, 8: [4.0] * 3}, some=[(4, 2)], loader="chunked")
    assert found.ranks == 8 and found.sentence.startswith("8 ranks get the work done 3 times as fast as 2")
    (found,) = answers(times, some=[(4, 2)], kind="host_lost", loader="parallel")
    assert found.ranks == 4 and "failed" not in found.sentence


def test_the_fewer_ranks_are_said_to_fail_more_often(answers):
    """2 ranks are 20 / 16 = 1.25 times as fast as 1, which is not worth it, but 1 rank failed once."""
    (found,) = answers({1: [20.0] * 3, 2: [16.0] * 3}, some=[(1, 3)])
    assert found.ranks == 1
    assert found.sentence.endswith("But 1 rank failed in 1 of 3 runs (oom in train).")


@pytest.mark.parametrize(
    ("one", "two", "words"),
    [
        ([0.017] * 3, [0.706, 0.71, 0.7], "test_loss is 0.017 on 1 rank, 0.705 on 2."),
        ([0.5, 0.5, 0.5], [0.501, 0.499, 0.5], ""),
        ([0.5, 0.52, 0.48], [0.56, 0.48, 0.5], ""),
        ([0.017], [0.706], "test_loss is 0.017 on 1 rank, 0.706 on 2 (one run each)."),
        ([0.5], [0.52], ""),
    ],
    ids=["worse", "less than one per cent", "within the scatter", "one run each", "one run each, nearly alike"],
)
def test_another_quality_of_the_same_work_is_told_first(answers, one, two, words):
    (found,) = answers({1: [20.0] * len(one), 2: [12.0] * len(two)}, loss={1: one, 2: two})
    number = "2 ranks (goal: at least half of the added ranks is used)."
    start = f"The same work does not give the same quality: {words} By time alone: " if words else ""
    assert (found.ranks, found.headline) == (2, f"{start}{number}")


def test_more_speedup_than_ranks_is_doubted_and_named(answers):
    """3.26 times on 2 ranks; 2.1 with an interval above that; and 2.2 of one block, which may be noise."""
    doubted = "Not 2, whatever its times: {} times as fast as 1 rank is more than 2 times the ranks can be: "
    (found,) = answers({1: [32.6], 2: [10.0]})
    assert (found.ranks, found.headline) == (None, "No answer.") and found.sentence.startswith(doubted.format("3.26"))
    (found,) = answers({1: [21.0] * 3, 2: [10.0] * 3, 4: [7.0] * 3}, loader="chunked")
    assert found.ranks == 4 and doubted.format("2.1") in found.sentence
    (found,) = answers({1: [22.0], 2: [10.0]}, loader="parallel")
    assert found.ranks == 2


@pytest.mark.parametrize(
    ("processes", "sentence"),
    [
        ({1: 1, 2: 1}, "The program had one process on any number of ranks: does it obey the number that it gets?"),
        ({1: 1, 2: 3}, None),
        ({1: 4, 2: 4}, None),  # such as one for each rank that a machine could have
        ({1: 1, 2: None}, None),
    ],
)
def test_a_program_with_as_many_processes_on_any_ranks_is_named(answers, processes, sentence):
    (answer,) = answers({1: [20.0] * 3, 2: [19.0] * 3}, own={"program_processes": processes})
    assert (sentence in answer.sentence) if sentence else ("on any number of ranks" not in answer.sentence)

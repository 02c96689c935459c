"""Runs that share a batch job: those of a block and a size in turn, small ones side by side; what a job asks for."""

import pytest

from study.machines import queues

RULES = [{"from_nodes": nodes, "minutes": minutes} for nodes, minutes in ((128, 180), (256, 360), (384, 540))]
THETA = {"name": "theta", "launcher": "aprun", "nodes": 4392, "ranks_per_node": 1, "time_limit_s": 10500,
         "queue": {"smallest_nodes": 128, "longest_minutes": RULES}}  # fmt: skip
SUMMIT = {"name": "summit", "launcher": "jsrun", "nodes": 4608, "ranks_per_node": 6, "time_limit_s": 6900,
          "queue": {"longest_minutes": [{"from_nodes": 1, "minutes": 120}]}}  # fmt: skip


def share(machine, *units, limit_s=1500):
    """The jobs of units ``(block, {name: ranks})``; runs start in the order of their names."""
    ranks = {name: number for _, unit in units for name, number in unit.items()}
    timed = {name: queues.Timed(ranks[name], limit_s) for name in sorted(ranks)}
    return queues.share_jobs([(block, list(unit)) for block, unit in units], timed, machine)


def test_the_runs_of_a_block_on_equally_many_nodes_are_made_in_turn():
    jobs = share(SUMMIT, (1, {"c": 6, "a": 1}), (1, {"b": 2}), (1, {"d": 12}), (2, {"e": 6, "f": 6}))
    assert jobs == [
        queues.SharedJob("block_1_nodes_1", 1, 3 * 25 + 2 * queues.NEXT_MIN + queues.MARGIN_MIN, (("a", "b", "c"),)),
        queues.SharedJob(None, 2, 30, (("d",),)),
        queues.SharedJob("block_2_nodes_1", 1, 56, (("e", "f"),)),
    ]


def test_what_is_too_long_for_one_job_is_divided_and_compared_runs_stay_together():
    """Four runs of 25 minutes are 108 minutes; the fifth, with its partner, needs another job."""
    jobs = share(SUMMIT, (1, {"a": 1, "e": 1}), (1, {"b": 1}), (1, {"c": 1, "d": 1}), (1, {"f": 1}))
    assert [(each.name, each.lanes) for each in jobs] == [
        ("block_1_nodes_1_part_1", (("a", "b", "e", "f"),)), ("block_1_nodes_1_part_2", (("c", "d"),)),
    ]  # fmt: skip
    too_long = share(SUMMIT, (1, {"a": 1, "b": 1}), limit_s=6900)
    assert [(each.name, each.minutes) for each in too_long] == [(None, 120)] * 2


def test_without_a_limit_of_the_queue_no_job_is_longer_than_one_of_a_run_s_may_be():
    unlimited = SUMMIT | {"queue": {}}
    assert [each.lanes for each in share(unlimited, (1, dict.fromkeys("abcd", 1)))] == [(("a", "b", "c", "d"),)]
    assert [len(each.lanes[0]) for each in share(unlimited, (1, dict.fromkeys("abcde", 1)))] == [4, 1]
    assert len(share(unlimited, (1, {"a": 1, "b": 1}), limit_s=6900)) == 2


def test_small_runs_have_lanes_of_a_job_and_those_that_are_compared_one_lane():
    units = [(block, {f"{block}{arm}": 24 for arm in "ab"}) for block in range(1, 7)]
    (job,) = share(THETA, *units)
    assert (job.name, job.nodes, job.minutes) == ("nodes_24_of_128_part_1", 144, 56)
    assert job.lanes[0] == ("1a", "1b") and len(job.lanes) == 6
    single = [(block, {f"{block}{arm}": 24}) for block in (1, 2, 3) for arm in "ab"]
    assert [len(each.lanes) for each in share(THETA, *single)] == [6], "of one lane each if nothing compares them"
    assert share(THETA, (None, {"load": 1})) == [queues.SharedJob("nodes_1_of_128_part_1", 128, 30, (("load",),))]
    long = share(THETA, *units, limit_s=10500)
    assert [(each.nodes, each.minutes, len(each.lanes)) for each in long] == [(256, 356, 6)], (
        "six hours in a larger job"
    )
    too_long = share(THETA, *units[:1], limit_s=12000)
    assert [(each.nodes, each.lanes) for each in too_long] == [(256, (("1a",), ("1b",)))], "seven hours in none"


def test_a_job_asks_for_what_its_lanes_need():
    small, large = queues.Timed(24, 1500), queues.Timed(384, 1500)
    assert queues.measure_job([[small, small], [small]], THETA) == (128, 56)
    assert queues.measure_job([[large]], THETA) == (384, 30)
    assert queues.measure_job([], THETA) == (128, queues.MARGIN_MIN), "all had ended in an earlier job"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, None),
        ({"launcher": "mpiexec"}, "queue.smallest_nodes: a run of 24 ranks has 24 nodes; a job must have at least 128"),
        ({"nodes": 100}, "queue.smallest_nodes: 128 are more than the 100 nodes of the machine"),
        ({"time_limit_s": 22000}, "queue.longest_minutes: 128 nodes may run for 180 minutes"),
    ],
)
def test_refusals(changes, words):
    machine = THETA | changes
    refusal = queues.refuse_run(queues.Timed(24, machine["time_limit_s"]), machine)
    assert refusal is None if words is None else words in refusal

"""Small runs in one batch job: who shares one, what it asks for, and what is told of it beforehand."""

import pytest

from study.machines import queues

THETA = {"name": "theta", "launcher": "aprun", "nodes": 4392, "ranks_per_node": 1, "time_limit_s": 10500,
         "queue": {"smallest_nodes": 128, "longest_minutes": [{"from_nodes": 128, "minutes": 180}]}}  # fmt: skip
RULES = [{"from_nodes": nodes, "minutes": minutes} for nodes, minutes in ((128, 180), (256, 360), (384, 540))]
LONGER = THETA | {"queue": {"smallest_nodes": 128, "longest_minutes": RULES}}


def timed(ranks, limit_s=10500):
    return queues.Timed(ranks, limit_s)


def test_only_runs_that_are_too_small_have_a_group():
    assert [queues.name_group(timed(ranks), THETA) for ranks in (1, 24, 127, 128, 384)] == [
        "nodes_1", "nodes_24", "nodes_127", None, None,
    ]  # fmt: skip
    assert queues.name_group(timed(1), THETA | {"queue": {}}) is None
    assert queues.name_group(timed(24, 18000), LONGER) == "nodes_24_of_256", "five hours need a larger job"


def test_a_job_has_the_nodes_of_its_runs_and_never_fewer_than_the_queue_takes():
    runs = [timed(24)] * 14 + [timed(384)]
    assert queues.list_jobs(runs, THETA, {"nodes_24": 6}) == [(384, 180), (144, 180), (144, 180), (128, 180)]
    assert queues.list_jobs(runs, THETA, {}) == [(384, 180)] + [(128, 180)] * 14
    long = [timed(24, 18000)] * 6
    assert queues.list_jobs(long, LONGER, {"nodes_24_of_256": 11}) == [(256, 305)], "144 nodes may not run for so long"


def test_small_runs_fill_the_smallest_job_and_what_was_given_is_kept():
    runs = [timed(1), timed(24), timed(24), timed(384)]
    assert queues.advise_components(runs, THETA, {}) == {"nodes_1": 128, "nodes_24": 6}
    assert queues.advise_components(runs, THETA, {"nodes_24": 3}) == {"nodes_24": 3, "nodes_1": 128}
    assert queues.advise_components([timed(24, 18000)], LONGER, {}) == {"nodes_24_of_256": 11}
    assert queues.advise_components([timed(384)], THETA, {}) == {}
    assert queues.advise_components([timed(1)], THETA | {"launcher": "mpiexec"}, {}) == {}


@pytest.mark.parametrize(
    ("changes", "components", "words"),
    [
        ({}, {}, "queue.smallest_nodes: a run of 24 ranks has 24 nodes; a job must have at least 128"),
        ({}, {"nodes_24": 6}, None),
        (
            {"launcher": "mpiexec"},
            {"nodes_24": 6},
            "launcher: runs packed into one job need one of aprun, flux, jsrun, srun",
        ),
        ({"nodes": 140}, {"nodes_24": 6}, "nodes: 6 runs of 24 nodes in one job are more than 140 nodes"),
        ({"time_limit_s": 20000}, {"nodes_24": 6}, "queue.longest_minutes: 144 nodes may run for 180 minutes"),
    ],
)
def test_refusals(changes, components, words):
    machine = THETA | changes
    refusal = queues.refuse_run(timed(24, machine["time_limit_s"]), machine, components)
    assert refusal is None if words is None else words in refusal


def test_what_was_asked_for_is_read_from_snakemake_s_arguments():
    line = "--profile theta --group-components nodes_1=128 nodes_6=22 -n --config study=icpp2019"
    assert queues.parse_components(line.split()) == {"nodes_1": 128, "nodes_6": 22}
    assert queues.parse_components(["--group-components=nodes_1=4", "all"]) == {"nodes_1": 4}
    assert queues.parse_components(["-n"]) == {}

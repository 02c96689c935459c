"""Small runs in one batch job: who shares one, what it asks for, and what is told of it beforehand."""

import pytest

from study.machines import packing, queues

THETA = {"name": "theta", "launcher": "aprun", "nodes": 4392, "ranks_per_node": 1, "time_limit_s": 10500,
         "queue": {"smallest_nodes": 128, "longest_minutes": [{"from_nodes": 128, "minutes": 180}]}}  # fmt: skip


def test_only_runs_that_are_too_small_have_a_group():
    assert [packing.group(ranks, THETA) for ranks in (1, 24, 127, 128, 384)] == [
        "nodes_1", "nodes_24", "nodes_127", None, None,
    ]  # fmt: skip
    assert packing.group(1, THETA | {"queue": {}}) is None


def test_a_job_has_the_nodes_of_its_runs_and_never_fewer_than_the_queue_takes():
    ranks = [24] * 14 + [384]
    assert packing.job_nodes(ranks, THETA, {"nodes_24": 6}) == [144, 144, 128, 384]
    assert packing.job_nodes(ranks, THETA, {}) == [128] * 14 + [384]


def test_the_advice_fills_the_smallest_job_and_keeps_what_was_given():
    assert packing.advice([1, 24, 24, 384], THETA, {}) == "--group-components nodes_1=128 nodes_24=6"
    assert packing.advice([1, 24], THETA, {"nodes_24": 6}) == "--group-components nodes_24=6 nodes_1=128"
    assert packing.advice([384], THETA, {}) is None
    assert packing.advice([1], THETA | {"launcher": "mpiexec"}, {}) is None


@pytest.mark.parametrize(
    ("changes", "components", "words"),
    [
        ({}, {}, "queue.smallest_nodes: a run of 24 ranks has 24 nodes; a job must have at least 128"),
        ({}, {"nodes_24": 6}, None),
        ({"launcher": "mpiexec"}, {"nodes_24": 6}, "launcher: runs packed into one job need one of aprun, jsrun, srun"),
        ({"nodes": 140}, {"nodes_24": 6}, "nodes: 6 runs of 24 nodes in one job are more than 140 nodes"),
        ({"time_limit_s": 20000}, {"nodes_24": 6}, "queue.longest_minutes: 144 nodes may run for 180 minutes"),
    ],
)
def test_refusals(changes, components, words):
    refusal = queues.refusal(24, THETA | changes, components)
    assert refusal is None if words is None else words in refusal


def test_what_was_asked_for_is_read_from_snakemake_s_arguments():
    line = "--profile theta --group-components nodes_1=128 nodes_6=22 -n --config study=icpp2019"
    assert packing.asked(line.split()) == {"nodes_1": 128, "nodes_6": 22}
    assert packing.asked(["--group-components=nodes_1=4", "all"]) == {"nodes_1": 4}
    assert packing.asked(["-n"]) == {}

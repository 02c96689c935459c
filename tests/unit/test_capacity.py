"""How many ranks a machine carries, and what the plan and a recommendation say of more."""

import dataclasses

import pytest
from examples import expand

from study import plan
from study.experiment.study import Study
from study.machines import host_capabilities
from study.machines.host_capabilities import Capacity
from study.machines.machine import load as machine
from study.report.tables import prediction

TWO = Capacity(2, "2 cores, 1 for each rank", host_capabilities.CORES)


@pytest.fixture
def two_cores(monkeypatch):
    monkeypatch.setattr(host_capabilities.cores, "count_usable_cores", lambda: 2.0)


@pytest.mark.parametrize(
    ("on", "changes", "ranks", "why"),
    [
        ("local", {}, 2, "2 cores, 1 for each rank"),
        ("local_processes", {"cores_per_rank": 2}, 1, "2 cores, 2 for each rank"),
        ("local", {"ranks_per_node": 1}, 1, "as its file says"),
        ("local", {"hosts": {"a": 3, "b": 2}}, 5, "as its file says"),
        ("local_mpi", {"scheduler": "pbs"}, 8, "as its file says"),  # a node's cores are not those of this host
        ("summit", {}, 4608 * 6, "as its file says"),
    ],
)
def test_what_a_machine_carries(two_cores, on, changes, ranks, why):
    assert (
        host_capabilities.compute_capacity({**machine(on), **changes}).words
        == f"{ranks} rank{'s' if ranks > 1 else ''} ({why})"
    )


def test_available_numbers_are_of_the_nodes_of_a_batch_system(two_cores):
    assert host_capabilities.compute_capacity({**machine("local_mpi"), "scheduler": "pbs"}).ranks == 8
    assert host_capabilities.compute_capacity(machine("local_mpi")).ranks == 2


def study_on(*counts, **point):
    runs = [run for gpus in counts for run in expand(gpus=gpus, scaling="weak", **point)]
    return Study("mine", "", {}, tuple(runs))


def test_cores_of_other_nodes_are_not_judged_here(two_cores):
    for on in (machine("summit"), {**machine("local"), "hosts": {"a": 8}}):
        assert plan._warn_of_shared_cores(study_on(4), on) == []


def test_a_recommendation_of_more_ranks_than_the_machine_carries_says_so():
    assert prediction._not_carried(2, TWO) == prediction._not_carried(8, None) == ""
    told = ". This machine carries 2 ranks (2 cores, 1 for each rank): 4 would share its cores"
    assert prediction._not_carried(4, TWO) == told
    assert prediction._not_carried(4, dataclasses.replace(TWO, shared="")) == ""

"""How many samples and steps an epoch of a program has."""

import pytest

from study.workloads.command.samples import count_epoch

SPEC = {"command": ["train"], "workload": {"train_samples": 1000}}


def count(ranks=2, batch=50, scaling="strong", work="samples", spec=None, **sizes):
    parameters = {"scaling": scaling, "work": work, "batch_size": batch}
    return count_epoch({**SPEC, **(spec or {})}, parameters, ranks, batch, sizes)


def numbers(epoch):
    return epoch.train_samples, epoch.samples_per_rank, epoch.steps, epoch.share


def test_without_reports_the_file_counts():
    assert numbers(count()) == (1000, 500, 10, 1) and count().doubt is None
    assert numbers(count(scaling="weak")) == (1000, 1000, 20, 1)
    assert count(batch=1).steps is None, "the batch size is not known"


def test_a_global_batch_size_gives_the_steps():
    epoch = count(global_batch_size=[200])
    assert numbers(epoch) == (1000, 500, 5, 1)
    assert epoch.remarks == ("global_batch_size: the program reported 200, which is used; the run's is 100",)
    assert numbers(count(batch=1, global_batch_size=[200], scaling="weak")) == (1000, 1000, 10, 1)


@pytest.mark.parametrize("reported", [[500], [500, 500], [499, 501]])
def test_samples_of_a_rank_are_not_those_of_all(reported):
    epoch = count(train_samples=reported)
    assert numbers(epoch) == (1000, 500, 10, 1) and "a rank's part of 1000" in epoch.remarks[0]


def test_another_size_of_the_whole_set_is_used_and_told():
    epoch = count(train_samples=[1200])
    assert numbers(epoch) == (1200, 600, 12, 1) and "reported 1200, which is used" in epoch.remarks[0]
    assert count(ranks=1, train_samples=[450]).doubt is None
    assert numbers(count(scaling="weak", train_samples=[500])) == (500, 500, 10, 1)


def test_a_size_that_is_neither_of_all_nor_of_a_rank_is_doubted():
    assert "which is neither the 1000 of the benchmark's file" in count(train_samples=[450]).doubt
    assert "which is neither the 1000 of the benchmark's file" in count(ranks=1, train_samples=[10**18]).doubt


@pytest.mark.parametrize(("ranks", "trained", "steps"), [(1, 900, 3), (2, 600, 1)])
def test_samples_that_fill_no_batch_are_counted_as_declared(ranks, trained, steps):
    dropped = count(ranks, 300, spec={"drop_last": True})
    assert numbers(dropped) == (1000, trained // ranks, steps, trained / 1000)
    kept = count(ranks, 300, spec={"drop_last": False})
    assert numbers(kept) == (1000, 1000 // ranks, -(-1000 // (300 * ranks)), 1) and kept.doubt is None
    assert numbers(count(ranks, 300, trained_samples=[trained])) == numbers(dropped)


def test_samples_that_fill_no_batch_are_doubted_if_nothing_says_whether_they_are_trained():
    why = "400 of an epoch's 1000 samples fill no batch of 600, and whether they are trained is not known"
    assert count(2, 300).doubt.startswith(why)
    assert count(2, 49).doubt is None, "few are left over"
    assert count(2, 300, work="epochs").doubt is None, "they are as many on any number of ranks"
    assert count(2, 600, spec={"drop_last": True}).doubt.endswith("so that nothing is trained")

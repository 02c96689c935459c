"""Ensembles without Horovod: their keys, the order of samples, and every way of sharing between threads as ranks."""

import dataclasses
import itertools
import json
import mmap
import os
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest
import yaml
from fake_communicator import ThreadedCommunicator

from study.backends.tensorflow.backend import BACKEND
from study.backends.tensorflow.gradient_averaging import get_averaging
from study.backends.tensorflow.input import make_batches, make_gatherer
from study.communication.single_rank import SingleRank
from study.core import cores
from study.core.errors import StudyError
from study.data.order import EpochOrder
from study.data.samples import Arrays, SampleSource
from study.ensembles import consumption, ring
from study.ensembles.consumption import Accelerator
from study.ensembles.content import Form
from study.ensembles.order import Block, Order
from study.ensembles.sharing import WAYS, Place
from study.ensembles.stream import Stream
from study.experiment.ensemble import list_members
from study.experiment.expansion import expand_study
from study.instruments import counters

SAMPLES, EPOCHS, BATCH = 50, 2, 7
WAIT_S = 100  # only keeps what is broken from hanging
X = np.arange(SAMPLES * 5, dtype=np.float32).reshape(SAMPLES, 5)
SOURCE = Arrays(X, X[:, :2] * 3)
STUDY = """
description: a test
datasets:
  lenet:
    {source: synthetic_images, train_samples: 80, test_samples: 20, image_size: 28, resize: 32, classes: 10, seed: 1}
members:
  rates: [{learning_rate: 0.1}, {learning_rate: 0.2, seed: 7, batch_size: 10, model: {l2: 0.1}}]
  shapes: [{}, {model: {classes: 3}}]
  large: [{}, {batch_size: 60}]
runs:
  - {benchmark: lenet, scaling: weak, epochs: 2, ensemble: 2, batch_size: 20, learning_rate_scaling: none,
     loader: tfrecord}
tables: [scaling]
"""


def planned(**changed):
    content = yaml.safe_load(STUDY)
    content["runs"][0] |= changed
    named, lists = changed.get("members"), content.pop("members")
    if named is not None:
        content["members"] = {named: lists[named]} if named in lists else lists
    return expand_study("test", content, "test.yaml").runs


def test_members_are_part_of_a_run():
    (run,) = planned(members="rates", input_sharing="all_shared")
    assert run.gpus == 2
    assert run.trained_ranks == 1
    first, second = list_members(run.parameters)
    assert (first.seed, first.learning_rate, first.batch_size) == (0, 0.1, None)
    assert (second.seed, second.batch_size, second.model) == (7, 10, {"l2": 0.1})
    assert json.loads(run["members"])[0] == {"learning_rate": 0.1}, "what they are, not what the list is called"
    assert "rates" not in run.directory
    (other,) = planned(input_sharing="all_shared")
    assert other.directory == run.directory.rsplit("+members", 1)[0] + "+input_sharing~all_shared"


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"ensemble": 3, "members": "rates"}, "runs[0].members: the list has 2 members, but ensemble is 3"),
        ({"members": "rats"}, "runs[0].members: there is no list 'rats'; did you mean 'rates'?"),
        ({"members": "shapes"}, "runs[0].members: member 1: model.classes decides what a sample is"),
        ({"learning_rate_scaling": "linear"}, "runs[0].ensemble: linear scaling would multiply"),
        ({"input_sharing": "multi_broadcast"}, "runs[0].preprocessing_ranks: 0: input_sharing: multi_broadcast needs"),
        (
            {"input_sharing": "single_broadcast", "preprocessing_ranks": 3},
            "runs[0].preprocessing_ranks: 3 is more than the 2 members",
        ),
        ({"preprocessing_ranks": 1}, "runs[0].preprocessing_ranks: 1: with input_sharing: duplicated all 2 ranks"),
        ({"gpus": 3}, "runs[0].ensemble: 2 members of 1 rank need gpus: 2, but gpus is 3"),
        ({"sharding": "by_rank"}, "runs[0].ensemble: an ensemble cannot be combined with sharding"),
        ({"gradient_compression": "fp16"}, "an ensemble cannot be combined with gradient_compression: members"),
        ({"prefetch_batches": 2}, "runs[0].ensemble: an ensemble cannot be combined with prefetch_batches"),
        (
            {"step_delay_ms": 1.0, "measure": "peak_throughput"},
            "runs[0].ensemble: step_delay_ms delays the steps of training",
        ),
        (
            {"checkpoint_epochs": 1, "measure": "peak_throughput"},
            "runs[0].ensemble: checkpoints are of training, and this run trains nothing",
        ),
        ({"compute": "simulated"}, "runs[0].simulated_samples_per_s: compute: simulated needs the rate"),
        ({"simulated_samples_per_s": 5.0}, "runs[0].simulated_samples_per_s: 5 needs compute: simulated"),
        ({"ensemble": 1, "input_sharing": "all_shared"}, "runs[0].input_sharing: all_shared: one member has nobody"),
    ],
    ids=str,
)
def test_what_cannot_run_is_refused(changed, words):
    with pytest.raises(StudyError) as refused:
        planned(**changed)
    assert words in str(refused.value)


@pytest.mark.parametrize("most", [None, 11])
@pytest.mark.parametrize("readers", [1, 2, 3])
def test_rounds_give_each_block_to_one_reader(readers, most):
    order = Order(5, SAMPLES, 8, EPOCHS, is_shuffled=True, most_blocks=most)
    rounds = list(order.iterate_rounds(readers))
    assert [block.number for block in itertools.chain(*rounds)] == list(range(most or 14))
    assert all(block.place % readers == reader for blocks in rounds for reader, block in enumerate(blocks))
    assert sum(order.own_blocks(reader, readers) for reader in range(readers)) == order.blocks == (most or 14)
    if most is None:
        assert sum(block.samples for block in itertools.chain(*rounds)) == SAMPLES * EPOCHS


def streams(
    sharing, ranks, readers, block, capacity=3, source=SOURCE, order=lambda order: order,
    passed_over=(0, 0, 0, 0),
):  # fmt: skip
    """The streams of all ranks, made together as ranks make theirs."""
    way = WAYS[sharing]
    sets = [each for each in dict.fromkeys(way.list_process_sets(ranks, readers)) if 1 < len(each) < ranks]
    order = order(Order(3, len(source), block, EPOCHS, is_shuffled=True))

    def make(communicator):
        form = Form.from_arrays(BACKEND.describe_blocks(source, order))
        shared = way(Place(communicator, BACKEND, source, readers, order, form, capacity))
        return Stream(shared, skipped_blocks=passed_over[communicator.rank])

    return each_in_a_thread(make, ThreadedCommunicator.several(ranks, sets))


def each_in_a_thread(work, items):
    """What ``work`` gives for each item, all at once; raises what one of them raises."""
    results, errors, threads = [None] * len(items), [], []
    for number, item in enumerate(items):

        def run(number=number, item=item):
            try:
                results[number] = work(item)
            except BaseException as error:
                errors.append(error)

        threads.append(threading.Thread(target=run, daemon=True))
        threads[-1].start()
    for thread in threads:
        thread.join(WAIT_S)
        assert not thread.is_alive() or errors, "a rank hangs"
    if errors:
        raise errors[0]
    return results


def taken(stream, compute=lambda: None, epochs=EPOCHS):
    """All that a member gets: its batches of all epochs. compute: done after each."""
    with stream.share_in_background():
        dataset, found = make_batches(stream, BATCH), []
        for batch in itertools.chain(*itertools.repeat(dataset, epochs)):
            found.append(tuple(array.numpy() for array in batch))
            compute()
        return found


def assert_right(batches, first=0):
    right = expected()[first:]
    assert len(batches) == len(right)
    for (x, y), (right_x, right_y) in zip(batches, right, strict=True):
        assert np.array_equal(x, right_x)
        assert np.array_equal(y, right_y)


def expected(seed=3):
    """The batches (x, y) of all epochs, in the order of a single job."""
    order, found = EpochOrder(seed), []
    for epoch in range(EPOCHS):
        order.set(epoch)
        chosen = order.positions(SAMPLES)
        found += [(X[chosen[i : i + BATCH]], X[chosen[i : i + BATCH], :2] * 3) for i in range(0, SAMPLES, BATCH)]
    return found


CASES = [
    ("duplicated", 2, 2, 4),
    ("all_shared", 3, 3, BATCH),
    ("all_shared", 3, 3, 20),
    ("single_broadcast", 3, 1, 4),
    ("single_broadcast", 3, 2, 4),
    ("single_broadcast", 2, 2, 4),
    ("multi_broadcast", 3, 1, 20),
    ("multi_broadcast", 3, 2, 4),
    ("concurrent_broadcast", 3, 2, 4),
    ("shared_memory", 3, 1, BATCH),
    ("shared_memory", 3, 2, 4),
]


@pytest.mark.slow
@pytest.mark.parametrize(("sharing", "ranks", "readers", "block"), CASES, ids=str)
def test_all_members_get_the_same_batches_in_every_way(sharing, ranks, readers, block):
    found = streams(sharing, ranks, readers, block)
    batches = each_in_a_thread(taken, found)
    for of_member in batches:
        assert_right(of_member)
    measured = [each.get_measurements() for each in found]
    epochs = EPOCHS * SAMPLES * (ranks if sharing == "duplicated" else 1)
    assert sum(each["samples_preprocessed"] for each in measured) == epochs
    every = EPOCHS * SOURCE_BYTES
    own = [each["samples_preprocessed"] * SOURCE_BYTES // SAMPLES for each in measured]
    shared = {"duplicated": [0] * ranks, "shared_memory": [0] * ranks}.get(sharing, [every - each for each in own])
    assert [each["received_bytes"] for each in measured] == shared


SOURCE_BYTES = X.nbytes + SOURCE.y.nbytes


@pytest.mark.parametrize(("sharing", "readers"), [("duplicated", 2), ("all_shared", 2), ("shared_memory", 1)])
@pytest.mark.parametrize("resumed", [(0, 1), (1, 1)])
def test_members_that_resume_get_the_batches_of_the_epochs_that_they_need(sharing, readers, resumed):
    """resumed: the epoch after which each member goes on."""
    first, blocks = min(resumed), 13  # of four samples, the last one of two
    found = streams(
        sharing, 2, readers, 4, passed_over=[(each - first) * blocks for each in resumed],
        order=lambda order: dataclasses.replace(order, first_epoch=first, epochs=EPOCHS - first),
    )  # fmt: skip
    work = list(zip(found, resumed, strict=True))
    batches = each_in_a_thread(lambda each: taken(each[0], epochs=EPOCHS - each[1]), work)
    for epoch, of_member in zip(resumed, batches, strict=True):
        assert_right(of_member, 8 * epoch)
    made = sum(each.get_measurements()["samples_preprocessed"] for each in found)
    assert made == (EPOCHS - first) * SAMPLES * (2 if sharing == "duplicated" else 1)


@pytest.mark.parametrize("sharing", ["all_shared", "duplicated"])
def test_a_member_that_ends_early_goes_on_sharing_and_makes_no_samples_that_nobody_needs(sharing):
    first, second = streams(sharing, 2, 2, 4)

    def some(stream):
        if stream is second:
            return taken(stream)
        with stream.share_in_background():
            return [next(iter(make_batches(stream, BATCH)))]

    _, every = each_in_a_thread(some, [first, second])
    assert len(every) == len(expected())
    if sharing == "duplicated":
        preprocessed = [each.get_measurements()["samples_preprocessed"] for each in (first, second)]
        assert preprocessed[0] < EPOCHS * SAMPLES / 2 < preprocessed[1] == EPOCHS * SAMPLES


def rings(slots=1):
    """The rings of two ranks of a node, both of which read; the first one writes blocks of one sample."""
    form = Form((np.dtype(np.float32),), ((2,),))
    memory = mmap.mmap(-1, ring.compute_size_bytes(form, slots, 1, 2))
    return [ring.Ring(memory, form, slots, [1] * 9, (2, 1, own)) for own in (0, 1)]


def block(number):
    return Block(number, number, 1), (np.full((1, 2), number, np.float32),)


def test_nobody_waits_for_a_member_that_ended_while_it_took_a_block(monkeypatch):
    first, second = rings()
    first.put(*block(0))
    first.get()
    check, checks = second._raise_if_closed, []

    def late():
        check()
        checks.append(None)
        if len(checks) == 2:
            second.close()

    monkeypatch.setattr(second, "_raise_if_closed", late)
    second.get()
    each_in_a_thread(lambda number: first.put(*block(number)), [1])
    assert first.get()[0].tolist() == [[1, 1]]
    each_in_a_thread(lambda number: first.put(*block(number)), [2])


class Damaged(Arrays):
    """Samples that can be read in the first epoch only."""

    def changes(self, chosen, epoch):
        return np.full((*chosen.shape, 1), epoch)

    def batch(self, chosen, changes=None):
        if changes is not None and changes.any():
            raise StudyError("train.tfrecord: is gone")
        return super().batch(chosen)


@make_gatherer.register
def _gather_damaged(samples: Damaged):
    return make_gatherer.dispatch(SampleSource)(samples)


def test_what_a_reader_cannot_read_ends_all_members():
    found = streams("shared_memory", 2, 1, 5, source=Damaged(SOURCE.x, SOURCE.y))

    def failure(stream):
        with pytest.raises(Exception, match=r"train.tfrecord: is gone|another rank of this node") as ended:
            taken(stream)
        return str(ended.value)

    of_reader, of_other = each_in_a_thread(failure, found)
    assert "is gone" in of_reader
    assert "another rank of this node, which writes blocks, has failed" in of_other


@pytest.mark.parametrize(("sharing", "readers"), [("all_shared", 2), ("shared_memory", 1)])
def test_a_measured_throughput_takes_as_many_batches_as_it_says(sharing, readers, monkeypatch):
    monkeypatch.setattr(consumption, "PEAK_BATCHES", (3, 8))  # ends within an epoch of eight batches

    class Run(dict):
        derived = SimpleNamespace(batch_size_per_rank=BATCH)
        learning_rate = 0.1

    run = Run(measure="peak_throughput", compute="measured")
    found = streams(sharing, 2, readers, 4, order=lambda order: consumption.limit_order(order, run))

    def peak(stream):
        with stream.share_in_background():
            trainer = SimpleNamespace(
                make_batches=lambda samples: make_batches(samples, run.derived.batch_size_per_rank)
            )
            return consumption.take_batches(trainer, stream, run).rates["peak_samples_per_s"]

    assert all(rate > 0 for rate in each_in_a_thread(peak, found))
    assert [each.batches_taken for each in found] == [11, 11]
    made = sum(each.get_measurements()["samples_preprocessed"] for each in found)
    assert made == SAMPLES + 6 * 4, "no more than the eleven batches need"


def test_the_rate_of_steps_is_that_of_whole_batches(monkeypatch):
    """A step takes a second; the one on the smaller batch, at the end of an epoch, also the time to compile it."""
    clock, sizes = [0.0], [BATCH, BATCH, BATCH - 2]

    def step(x, y):
        clock[0] += 1.0 if len(x) == BATCH else 30.0

    monkeypatch.setattr(consumption, "COMPUTE_BATCHES", (2, 7))
    monkeypatch.setattr(
        consumption, "time", SimpleNamespace(monotonic=lambda: clock[0], monotonic_ns=time.monotonic_ns)
    )
    run = SimpleNamespace(derived=SimpleNamespace(batch_size_per_rank=BATCH), learning_rate=0.1)
    trainer = SimpleNamespace(make_batches=lambda _: [(np.zeros((size, 1)), None) for size in sizes], step=step)
    found = consumption._measure_compute_rate(trainer, SimpleNamespace(is_ready=True), run)
    assert found.rates == {"compute_samples_per_s": BATCH}


def test_a_simulated_accelerator_makes_up_for_late_wake_ups():
    clock = [0.0]

    def sleep(seconds):
        clock[0] += seconds * 1.1

    device = Accelerator(100.0, lambda: clock[0], sleep)
    for _ in range(50):
        device.compute(10)
    device.finish()
    assert clock[0] == pytest.approx(5.0, abs=0.05)
    clock[0] += 3
    device.compute(10)
    assert device.idle_s == pytest.approx(3.0, abs=0.05)


def test_a_core_limit_takes_the_first_cores(monkeypatch):
    kept = []
    monkeypatch.setattr(cores, "limited", None)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {5, 3, 9})
    monkeypatch.setattr("os.sched_setaffinity", lambda _, cores: kept.append(cores))
    cores.limit_cores({cores.VARIABLE: "2"})
    cores.limit_cores({})
    assert kept == [[3, 5]]
    assert cores.limited.cores == {3, 5}
    assert 0 < cores.limited.before_s < time.process_time()


@pytest.mark.parametrize(
    ("statistics", "seconds"),
    [("1500000000 7 9", 1.5), ("0 0 0", 300 / counters.TICKS), (None, 300 / counters.TICKS)],
    ids=["kept", "not kept, as without CONFIG_SCHEDSTATS", "no file"],
)
def test_the_time_of_a_thread_is_known_on_each_kernel(tmp_path, monkeypatch, statistics, seconds):
    """250 ticks in user mode and 50 in system mode; the name of the thread has a bracket."""
    monkeypatch.setattr(counters, "TASKS", tmp_path)
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "stat").write_text("7 (a) b) S 1 2 3 4 5 6 7 8 9 10 250 50 0 0\n")
    if statistics:
        (tmp_path / "7" / "schedstat").write_text(f"{statistics}\n")
    assert counters.sum_thread_cpu_s([7]) == seconds


def test_cpu_time_on_other_cores_is_that_of_threads_that_may_use_them():
    """One thread stays on the first core, the other one may use a core that the process is not kept on."""
    ready, end = threading.Barrier(3), threading.Event()
    times, first = {}, cores.list_allowed_cpus()[0]

    def work(name, kept):
        if kept:
            os.sched_setaffinity(threading.get_native_id(), {first})
        while time.thread_time() < 0.05:
            pass
        times[name] = time.thread_time()
        ready.wait(WAIT_S)
        end.wait(WAIT_S)

    threads = [threading.Thread(target=work, args=each) for each in (("kept", True), ("free", False))]
    for thread in threads:
        thread.start()
    ready.wait(WAIT_S)
    limits = (), {first}, cores.list_allowed_cpus()
    nowhere, on_first, everywhere = (
        counters.sum_other_cores_cpu_s(cores.Limited(frozenset(each), 0.5)) for each in limits
    )
    end.set()
    assert everywhere == 0.5, "what was used before"
    assert nowhere >= 0.5 + times["kept"] + times["free"]
    if len(cores.list_allowed_cpus()) > 1:
        assert 0.5 + times["free"] <= on_first < nowhere - 0.04


def test_a_member_observes_its_gradients_under_a_loss_scale_too():
    import tensorflow as tf
    import tf_keras as keras

    optimizer, weight, seen = keras.optimizers.SGD(0.5), tf.Variable(3.0), []
    scaled = keras.mixed_precision.LossScaleOptimizer(optimizer, dynamic=False, initial_scale=8)
    (communicator,) = ThreadedCommunicator.several(1)
    get_averaging(SingleRank(communicator)).observe_gradients(scaled, seen.append)
    scaled.minimize(lambda: 2 * weight, [weight])
    (own,) = seen
    assert [float(each) for each in own] == [2 * 8]
    assert float(weight) == 3 - 0.5 * 2

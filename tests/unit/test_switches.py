"""Switches of Horovod, TensorFlow, the input and the placement: what sets them, and what refuses them."""

import dataclasses
import math
import os
from pathlib import Path

import numpy as np
import pytest
from examples import define, expand
from fake_communicator import FakeCommunicator

from study import plan, workloads
from study.backends.tensorflow import build, devices, precision
from study.backends.tensorflow.step_measures import StepMeasures
from study.core import configuration
from study.core.errors import StudyError
from study.data import order as sample_order
from study.experiment import learning_rate
from study.experiment.study import Study
from study.launch import variables
from study.machines import machine
from study.training import binding
from study.training.schedule import Schedule

WEAK = {"scaling": "weak", "epochs": 8}  # five steps an epoch
STEPS = 5
DDP = {"framework": "pytorch", "strategy": "ddp"}
devices.limit_threads(1)  # can be set only before TensorFlow's first use in this process


@pytest.mark.parametrize(
    ("point", "set_to"),
    [
        ({"fusion_threshold_mb": 0}, {"HOROVOD_FUSION_THRESHOLD": "0"}),
        ({"fusion_threshold_mb": 64}, {"HOROVOD_FUSION_THRESHOLD": "67108864"}),
        ({"cycle_time_ms": 3.5}, {"HOROVOD_CYCLE_TIME": "3.5"}),
        ({"cache_capacity": 0}, {"HOROVOD_CACHE_CAPACITY": "0"}),
        ({"xla": True}, {"TF_XLA_FLAGS": "--tf_xla_auto_jit=2 --tf_xla_cpu_global_jit"}),
        ({**DDP, "torch_compile": True}, {"TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"}),
        ({"kmp_blocktime_ms": 0}, {"KMP_BLOCKTIME": "0"}),
        ({"intra_op_threads": 2}, {"OMP_NUM_THREADS": "2"}),
    ],
)
def test_a_switch_is_a_variable_of_its_own_and_nothing_else(tmp_path, monkeypatch, point, set_to):
    """And the default sets none, whatever the shell has."""
    folder = tmp_path.__class__("run")
    usual, changed = (
        variables.make_rank_environment(define(expand(**each)[0]), folder, 900, dict.fromkeys(set_to, "shell"))
        for each in ({key: point[key] for key in WEAK if key in point}, point)
    )
    own = {name: value for name, value in usual.items() if name in set_to}
    assert own in ({}, {"OMP_NUM_THREADS": "1"})
    assert {name: value for name, value in changed.items() if usual.get(name) != value and name in set_to} == set_to
    assert set(changed) - set(usual) <= set(set_to)


def test_a_switch_is_stronger_than_the_machine_s_file():
    run = define(expand(kmp_blocktime_ms=3, fusion_threshold_mb=1)[0], on="theta")
    found = variables.define_run_variables(run, Path("run"), 900)
    assert (found["KMP_BLOCKTIME"], found["HOROVOD_FUSION_THRESHOLD"]) == ("3", "1048576")
    usual = variables.define_run_variables(define(expand()[0], on="theta"), Path("run"), 900)
    assert usual["KMP_BLOCKTIME"] == "0"


@pytest.mark.parametrize(
    ("point", "message"),
    [
        ({"cache_capacity": 0, "trace": True}, "cache_capacity: a traced run disables"),
        ({"gradient_compression": "fp16", "gpus": 1, "emulated_ranks": 2}, "gradient_compression: an emulated run"),
        ({"backward_passes_per_step": 2, "gpus": 1, "emulated_ranks": 2}, "backward_passes_per_step: an emulated run"),
        ({"backward_passes_per_step": 2, "checkpoint_epochs": 1}, "backward_passes_per_step: checkpoints lack"),
        ({"precision": "mixed_float16", "checkpoint_epochs": 1}, "precision: checkpoints lack the loss scale"),
        ({"precision": "mixed_bfloat16", "gpus": 1, "emulated_ranks": 2}, "precision: an emulated run"),
        ({"training_loop": "custom", "gpus": 1, "emulated_ranks": 2}, "training_loop: emulated ranks"),
        ({"training_loop": "custom", "input_pipeline": "keras_arrays"}, "training_loop: input_pipeline: keras_arrays"),
        ({"prefetch_batches": 2, "input_pipeline": "keras_arrays"}, "prefetch_batches: Keras makes the batches"),
        ({"map_parallel_calls": 2, "input_pipeline": "keras_arrays"}, "map_parallel_calls: Keras makes the batches"),
        ({"shuffle_buffer_samples": 2, "input_pipeline": "keras_arrays"}, "shuffle_buffer_samples: Keras makes"),
        ({"prefetch_batches": 2, "gpus": 1, "emulated_ranks": 2}, "prefetch_batches: an emulated rank's batches"),
        ({"cache_samples": True, "gpus": 1, "emulated_ranks": 2}, "cache_samples: an emulated rank's batches"),
        ({"training_loop": "custom", "profile": True}, "training_loop: the profile's columns"),
        ({"cache_samples": True}, "cache_samples: nt3's tables are in memory"),
        ({"backward_passes_per_step": 1000}, "backward_passes_per_step: it is more than the .* would never"),
        ({"warmup": "constant"}, "warmup: constant says how the rate grows in warmup_epochs, which is 0"),
        ({"warmup": "by_epoch"}, "warmup: by_epoch says how the rate grows in warmup_epochs, which is 0"),
        ({"batch_norm_momentum": 0.95}, "batch_norm_momentum: nt3 has no batch normalisation; leave it out"),
        ({"learning_rate_decay": "step"}, "decay_epochs: learning_rate_decay: step needs 1 or more"),
        ({"learning_rate_decay": "linear", "decay_epochs": 2}, "decay_epochs: learning_rate_decay: linear does not"),
        ({"learning_rate_decay": "collapsed", "decay_epochs": 2}, "decay_epochs: 2 epochs of collapse leave none of"),
        ({"reduction_epochs": "1"}, "reduction_epochs: needs learning_rate_decay: step"),
        ({"learning_rate_decay": "step", "reduction_epochs": "2-1"}, "reduction_epochs: 2-1: each epoch must be later"),
        (
            {"learning_rate_decay": "step", "reduction_epochs": "1", "decay_epochs": 1},
            "decay_epochs: reduction_epochs says when",
        ),
        ({"learning_rate_decay": "linear", "warmup_epochs": 2}, "learning_rate_decay: the warm-up takes all 2 epochs"),
        ({"learning_rate_decay": "linear", "plateau_epochs": 2}, "learning_rate_decay: the decay sets the learning"),
        ({"communication_cores": 1}, "communication_cores: needs binding: core"),
        ({"strategy": "parameter_server", "servers": 1, "fusion_threshold_mb": 1}, "strategy: .*the fusion buffer is"),
        ({"strategy": "parameter_server", "servers": 1, "learning_rate_decay": "linear"}, "strategy: .*learning_rate"),
    ],
)
def test_what_does_not_fit_together_is_refused_with_the_key(point, message):
    with pytest.raises(StudyError, match=message.replace("(", r"\(")) as told:
        expand(**point)
    assert "\n" not in str(told.value)


def refused(on, **point):
    """The lines of the plan on a machine, without those of programs that are not here."""
    runs = expand(**point)
    settings = machine.load(on) if isinstance(on, str) else on
    study = Study("test", "a test", {}, runs)
    return [line for line in plan.list_refusals(study, settings) if "test.yaml" in line]


@pytest.mark.parametrize(
    ("on", "point", "reason"),
    [
        ("local", {"lustre_stripes": 4}, "local has no file_system: lustre in its file"),
        ("local", {"communication_cores": 1, "binding": "core"}, "1 of a rank's 1 cores"),
        ("lab", {"binding": "numa"}, "the laboratory's hosts share one machine's cores"),
    ],
)  # fmt: skip
def test_what_a_machine_cannot_have_is_planned_but_not_started(on, point, reason):
    (line,) = refused(on, **point)
    assert line.startswith(f"config/studies/test.yaml: {next(iter(point))} (1 run): {reason}")


def momentum_run(warmup="gradual", **point):
    """A definition of a run whose optimizer has a momentum of 0.9; 4 ranks, rates 0.001 to 0.004."""
    run = define(expand(gpus=4, **WEAK, **point)[0])
    of_benchmark = {**run.benchmark, "momentum": 0.9}
    return dataclasses.replace(run, benchmark=of_benchmark, parameters={**run.parameters, "warmup": warmup})


SCHEDULES = {  # of 40 steps: the factor of one rank's rate 0.001 in step t
    "gradual": ({"warmup_epochs": 2}, lambda t: 1 + 3 * min(1, (t + 1) / 10)),
    "constant": ({"warmup_epochs": 2, "warmup": "constant"}, lambda t: 1 if t < 10 else 4),
    "by epoch": ({"warmup_epochs": 3, "warmup": "by_epoch"}, lambda t: 1 + min(3, t // 5)),
    "step": ({"learning_rate_decay": "step", "decay_epochs": 3}, lambda t: 4 * 0.1 ** (t // 15)),
    "step by a list": (
        {"learning_rate_decay": "step", "reduction_epochs": "3-6-7"},
        lambda t: 4 * 0.1 ** ((t >= 15) + (t >= 30) + (t >= 35)),
    ),
    "linear": ({"learning_rate_decay": "linear"}, lambda t: 4 * (1 - t / 40)),
    "warm and linear": (
        {"learning_rate_decay": "linear", "warmup_epochs": 2},
        lambda t: 1 + 3 * (t + 1) / 10 if t < 10 else 4 * (40 - t) / 30,
    ),
    "collapsed": (
        {"learning_rate_decay": "collapsed", "decay_epochs": 2},
        lambda t: 4 * (1 - t / 40) if t < 30 else 4 * 0.25 * ((40 - t) / 10) ** 2,
    ),
}


class Held:
    """A trainer with nothing but a learning rate."""

    def __init__(self, rate):
        self.rate = rate

    def set_learning_rate(self, rate):
        """Hold it."""
        self.rate = rate

    def set_penalty_factor(self, factor):
        """It has no penalties."""


def steps_of(run, epochs_before=0):
    """The learning rate of each step from a run's begin, or from where it resumes."""
    held, found = Held(learning_rate.scale_rate(run, 4)), []
    schedule = Schedule(held, run, FakeCommunicator(size=4), STEPS, [0.5] * epochs_before)
    for _ in range((8 - epochs_before) * STEPS):
        if schedule.changes_by_step:
            schedule.apply_schedule()
        found.append(held.rate)
    return found


@pytest.mark.parametrize("name", SCHEDULES)
def test_the_learning_rate_of_every_step_is_the_closed_form(name):
    """From the begin, and from each epoch after which a run may resume."""
    point, factor = SCHEDULES[name]
    run, expected = momentum_run(**point), [0.001 * factor(t) for t in range(40)]
    for epochs_before in (0, 1, 2, 5, 7):
        found = steps_of(run, epochs_before)
        assert found == pytest.approx(expected[epochs_before * STEPS :], rel=1e-6), epochs_before
    rates = [learning_rate.compute_rate(run, 4, t, STEPS) for t in range(40)]
    assert rates == pytest.approx(expected, rel=1e-12)


def test_the_order_with_a_buffer_is_of_seed_and_epoch():
    def order(seed, epoch, buffer=8):
        return sample_order.EpochOrder(seed, epoch, buffer).positions(50).tolist()

    assert order(1, 0) == order(1, 0)
    assert len({tuple(each) for each in (order(1, 0), order(1, 1), order(2, 0), order(1, 0, 0))}) == 4
    by_rank = sample_order.OrdersByRank([1, 2], 3, 8).positions(50)
    assert by_rank[:, 1].tolist() == order(2, 3)


def test_cores_of_ranks():
    assert binding.choose_own_cores([2, 3, 6, 7, 9], 2, 1, 2) == [6, 7]
    with pytest.raises(StudyError, match="binding: core needs 2 cores for each of the 3 ranks of this host, which has"):
        binding.choose_own_cores([2, 3, 6, 7], 2, 0, 3)


def test_numa_nodes_of_ranks(tmp_path):
    for number, cores in enumerate(["0-3", "4-5,8", "6-7", ""]):
        (tmp_path / f"node{number}").mkdir()
        (tmp_path / f"node{number}" / "cpulist").write_text(f"{cores}\n")
    allowed = [0, 1, 4, 5, 8]  # the third node has none of them
    assert [binding.choose_numa_cores(allowed, rank, 4, tmp_path) for rank in range(4)] == [
        [0, 1],
        [0, 1],
        [4, 5, 8],
        [4, 5, 8],
    ]
    assert binding.choose_numa_cores([0, 1], 0, 1, tmp_path / "nothing") == [0, 1]


def test_threads_are_bound_and_the_library_s_apart(monkeypatch):
    bound, point = {}, {"binding": "core", "communication_cores": 1}
    run = define(expand(**point)[0])
    run = dataclasses.replace(run, machine={**run.machine, "cores_per_rank": 2})
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    monkeypatch.setattr(os, "sched_setaffinity", bound.__setitem__)
    ranks = FakeCommunicator(size=2, rank=1)
    ranks.own_threads = {os.getpid()}
    assert binding.bind_threads(run, ranks) == {"compute": [2], "communication": [3]}
    assert bound.pop(os.getpid()) == [3]
    assert all(cores == [2] for cores in bound.values()) and bound
    assert binding.bind_threads(define(expand()[0]), ranks) is None
    given = [binding.socket.gethostname(), binding.read_boot_id()]
    ranks.gathered = [[[*given, [0, 1]], [*given, [2, 3]]]]
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {2, 3})
    assert binding.bind_threads(run, ranks) == {"compute": [2], "communication": [3]}, "the launcher has bound them"


def test_ranks_that_share_a_socket_have_cores_of_their_own(monkeypatch):
    """Four ranks with two cores each, of which a launcher has bound two to each socket; a host of the same name."""
    run = define(expand(binding="core")[0])
    run = dataclasses.replace(run, machine={**run.machine, "cores_per_rank": 2})
    monkeypatch.setattr(os, "sched_setaffinity", lambda *_: None)
    host, boot, sockets = binding.socket.gethostname(), binding.read_boot_id(), ([0, 1, 2, 3], [4, 5, 6, 7])
    given = [[host, "other", sockets[0]], *([host, boot, sockets[place]] for place in (0, 0, 1, 1))]
    found = []
    for rank in range(1, 5):
        ranks = FakeCommunicator(size=5, rank=rank)
        ranks.gathered = [given]
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, rank=rank: set(given[rank][2]))
        found.append(binding.bind_threads(run, ranks)["compute"])
    assert found == [[0, 1], [2, 3], [4, 5], [6, 7]]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mixed_bfloat16", "mixed_float16"])
def test_mixed_precision_keeps_weights_and_output_in_float32(name):
    import tf_keras as keras

    run = define(expand(precision=name)[0])
    model = build.compile_model(
        workloads.load_benchmark("nt3", configuration.load_named("benchmarks", "nt3")),
        run,
        FakeCommunicator(size=2),
        (60, 1),
    )
    assert keras.mixed_precision.global_policy().name == "float32", "later models are not touched"
    assert {each.dtype.name for each in model.variables} == {"float32"}
    assert model.layers[0].compute_dtype == name.removeprefix("mixed_")
    assert model(np.zeros((1, 60, 1), np.float32)).dtype.name == "float32"
    assert (type(model.optimizer).__name__ == "LossScaleOptimizerV3") is (name == "mixed_float16")
    assert precision.get_policy_name(run) == name
    before = model.get_weights()
    found = model.train_on_batch(np.ones((2, 60, 1), np.float32), np.eye(2, dtype=np.float32), return_dict=True)
    assert math.isfinite(found["loss"])
    assert any((one != other).any() for one, other in zip(before, model.get_weights(), strict=True))


def test_step_times_leave_out_the_first_epoch():
    measures = StepMeasures(define(expand()[0]), steps=4)
    assert measures.summarize_step_times() is None
    for begins in ([0, 9, 18, 27], [0.0, 1.0, 2.0, 3.0], [10.0, 11.0, 12.0, 15.0]):
        measures._begins.assign(begins)
        measures.end_epoch(4)
    found = measures.summarize_step_times()
    assert found["median_s"] == 1.0
    assert found["p95_s"] == pytest.approx(np.quantile([1, 1, 1, 1, 1, 3], 0.95))
    assert found["jitter"] == 0
    assert StepMeasures(define(expand()[0]), steps=1).summarize_step_times() is None
    assert math.isfinite(found["p95_s"])

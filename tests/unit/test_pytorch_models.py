"""PyTorch's models, losses, metrics and optimizers are Keras's: same initial weights, same losses, same steps."""

import importlib.util
import socket
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import yaml
from examples import define, expand
from fake_communicator import FakeCommunicator

from study import backends
from study.communication.single_rank import SingleRank
from study.core.errors import StudyError
from study.core.paths import SCRIPTS
from study.data.samples import Arrays
from study.machines import probe
from study.workloads.base import Data

BENCHMARKS = SCRIPTS.parent / "config" / "benchmarks"
SAMPLES, BATCH = 24, 8
HAS_TORCH = importlib.util.find_spec("torch") is not None


def trains(test):
    """Of a test that trains with PyTorch, which is imported in it: `make quick` has no use for its three seconds."""
    without = pytest.mark.skipif(not HAS_TORCH, reason="PyTorch is not installed: make setup WITH=pytorch")
    return pytest.mark.slow(without(test))


# By benchmark: shape of a sample, number of outputs, changes of its ``model``.
NETWORKS = {
    "nt3": ((60, 1), 2, {"dropout": 0.0}),
    "p1b1": ((40,), 40, {}),
    "p1b2": ((50,), 10, {}),
    "p1b3": ((30,), 1, {"dropout": 0.0}),
    "lenet": ((28, 28, 3), 10, {"dropout": 0.0, "classes": 10}),
    "lenet_classic": ((28, 28, 1), 10, {"classes": 10, "channels": 1}),
    "alexnet": ((67, 67, 3), 10, {"dropout": 0.0, "classes": 10, "image_size": 67}),
    # Before any training its outputs are so large that most of Keras's probabilities are 0: no top-5 accuracy.
    "resnet50": ((32, 32, 3), 5, {"classes": 5, "image_size": 32}),
}


def run_of(name, framework, batch=BATCH, **keys):
    """A definition; its dataset does not matter."""
    ((planned),) = expand(gpus=1, scaling="weak", epochs=4, batch_size=batch, loader="npy", **keys)
    run = define(planned)
    spec = yaml.safe_load((BENCHMARKS / f"{name}.yaml").read_text())
    spec["model"] |= NETWORKS[name][2]
    spec["learning_rate"] = min(spec["learning_rate"], 1e-3)  # the larger ones of images diverge on noise
    strategy = "ddp" if framework == "pytorch" else "horovod"
    parameters = {**run.parameters, "framework": framework, "strategy": strategy}
    return replace(run, benchmark={**spec, "name": name}, parameters=parameters)


def data_of(name):
    shape, outputs, _ = NETWORKS[name]
    random = np.random.default_rng(7)
    samples_in_all = BATCH if name == "resnet50" else SAMPLES
    x = random.normal(0, 1, (samples_in_all, *shape)).astype(np.float32)
    if name == "p1b1":
        x = random.random((samples_in_all, *shape)).astype(np.float32)
        samples = Arrays(x, x)
    elif name == "p1b3":
        samples = Arrays(x, random.normal(0, 1, (samples_in_all, 1)).astype(np.float32))
    else:
        samples = Arrays(x, np.eye(outputs, dtype=np.float32)[random.integers(outputs, size=samples_in_all)])
    return Data(samples, samples, samples, features=int(np.prod(shape)))


def trainer_of(name, framework, **keys):
    run = run_of(name, framework, **keys)
    backend = backends.get_backend(run.framework)
    made = backend.build(backend.load_workload(run), run, SingleRank(FakeCommunicator()), data_of(name))
    made.begin_training(0)
    return made


def compiling_trainer_of(monkeypatch, name):
    plain = run_of

    def run(*arguments):
        found = plain(*arguments)
        return replace(found, parameters={**found.parameters, "torch_compile": True})

    with monkeypatch.context() as here:
        here.setitem(globals(), "run_of", run)
        return trainer_of(name, "pytorch")


def epoch(trainer, number=0):
    return trainer.train_epoch(number, lambda: None)


@trains
@pytest.mark.parametrize("name", NETWORKS)
def test_the_same_job_in_both_frameworks(name):
    keras, torch_made = (trainer_of(name, framework) for framework in ("tensorflow", "pytorch"))
    assert torch_made.parameters == keras.parameters
    assert torch_made.trainable_parameters == keras.trainable_parameters
    data = data_of(name)
    kernels = ([each for each in made.get_trained_weights() if each.ndim > 1] for made in (keras, torch_made))
    for of_keras, of_torch in zip(*kernels, strict=True):
        transposed = np.transpose(of_keras, (-1, -2, *range(of_keras.ndim - 2)))
        assert np.array_equal(transposed.reshape(of_torch.shape), of_torch)
    before = keras.evaluate(data.test), torch_made.evaluate(data.test)
    # A correlation near 0 is a difference of sums near 1 in float32, which processors round differently.
    assert before[1] == pytest.approx(before[0], rel=2e-6, abs=5e-6)
    trained = epoch(keras), epoch(torch_made)
    # Batch normalisation of small maps enlarges the rounding: both frameworks are as far from float64 as they are from
    # each other. So its first step is compared only.
    bound = {"rel": 1e-4} if name == "resnet50" else {"rel": 2e-4, "abs": 2e-5}
    assert trained[1]["loss"] == pytest.approx(trained[0]["loss"], **bound)
    if name != "resnet50":
        assert trained[1] == pytest.approx(trained[0], **bound)
        after = keras.evaluate(data.test), torch_made.evaluate(data.test)
        assert after[1] == pytest.approx(after[0], rel=1e-3, abs=1e-4)


@trains
@pytest.mark.parametrize(("optimizer", "momentum"), [("sgd", 0.0), ("sgd", 0.9), ("adam", 0.0), ("rmsprop", 0.0)])
def test_optimizers_make_keras_s_steps_also_when_the_rate_changes(optimizer, momentum):
    """A hundred steps; the rate and the momentum change on the way."""
    import torch
    from tf_keras import optimizers

    from study.backends.pytorch.optimizers import Optimizer

    random = np.random.default_rng(3)
    first, gradients = random.normal(0, 1, 50), random.normal(0, 1e-3, (100, 50))
    kinds = {"sgd": optimizers.SGD, "adam": optimizers.Adam, "rmsprop": optimizers.RMSprop}
    import tensorflow as tf

    variable, weight = tf.Variable(first), torch.nn.Parameter(torch.from_numpy(first.copy()))
    keras = kinds[optimizer](learning_rate=0.01, **({"momentum": momentum} if momentum else {}))
    ours = Optimizer(optimizer, [weight], 0.01, momentum)
    for step, gradient in enumerate(gradients):
        rate = 0.01 / (1 + step // 10)
        keras.learning_rate = ours.rate = rate
        keras.apply_gradients([(tf.constant(gradient), variable)])
        weight.grad = torch.from_numpy(gradient)
        ours.apply()
        ours.steps += 1
    assert weight.detach().numpy() == pytest.approx(variable.numpy(), abs=2e-6)  # Keras has its rates in float32


def equal_states(one, other):
    return all(np.array_equal(one[name], other[name]) for name in one) and one.keys() == other.keys()


def close(one, other, rel, least):
    """As ``one == pytest.approx(other, rel=rel, abs=least)``, which takes seconds for a million weights."""
    return one.shape == other.shape and bool((np.abs(one - other) <= np.maximum(rel * np.abs(other), least)).all())


@trains
def test_a_restored_state_trains_on_bit_for_bit():
    """With dropout, momentum and batch normalisation: masks follow from the epoch, all else is in the state."""
    import torch

    NETWORKS["nt3"][2]["dropout"] = 0.5
    try:
        whole, begun, resumed = (trainer_of("nt3", "pytorch") for _ in range(3))
        for number in range(3):
            epoch(whole, number)
        epoch(begun, 0)
        resumed.load_state(begun.get_state())
        torch.rand(5)  # other draws in between do not matter
        epoch(resumed, 1)
        epoch(resumed, 2)
    finally:
        NETWORKS["nt3"][2]["dropout"] = 0.0
    assert equal_states(whole.get_state(), resumed.get_state())
    assert resumed.count_steps_made() == 9
    assert {name: array.shape for name, array in resumed.get_state().items()} == resumed.get_shapes()


@trains
def test_several_passes_per_step_are_the_average_of_their_gradients():
    """Two passes of 8 samples change the weights as one step of 16 does."""
    import torch

    two, one = trainer_of("p1b2", "pytorch", backward_passes_per_step=2), trainer_of("p1b2", "pytorch", batch=16)
    x, y = data_of("p1b2").train.batch(np.arange(16))
    x, y = torch.from_numpy(x), torch.from_numpy(y)
    one.step(x, y)
    first = next(iter(two.get_trained_weights())).copy()
    two.step(x[:8], y[:8])
    assert np.array_equal(first, next(iter(two.get_trained_weights())))
    two.step(x[8:], y[8:])
    for of_two, of_one in zip(two.get_trained_weights(), one.get_trained_weights(), strict=True):
        assert close(of_two, of_one, rel=1e-5, least=1e-6)


@trains
def test_layers_compute_in_16_bits_and_the_output_in_32():
    import torch

    trainer, types = trainer_of("nt3", "pytorch", precision="mixed_bfloat16"), {}
    for name, layer in trainer.model.named_modules():
        layer.register_forward_hook(lambda _, __, found, name=name: types.update({name: found.dtype}))
    exact = trainer_of("nt3", "pytorch").evaluate(data_of("nt3").test)["loss"]
    assert trainer.evaluate(data_of("nt3").test)["loss"] == pytest.approx(exact, rel=0.05)
    kinds = list(types.values())
    assert torch.bfloat16 in kinds
    assert types[list(dict(trainer.model.named_modules()))[-1]] == torch.float32


@trains
@pytest.mark.parametrize("loss", ["binary_crossentropy", "mse"])
def test_the_accuracy_of_a_single_output_is_keras_s(loss):
    """Of the losses, the first one takes what is before the sigmoid."""
    import torch
    from tf_keras import metrics

    from study.backends.pytorch.losses_and_metrics import make_metrics

    right = np.float32([[0], [1], [1], [0], [1]])
    probabilities = np.float32([[0.1], [0.9], [0.3], [0.6], [0.51]])
    outputs = probabilities if loss == "mse" else np.log(probabilities / (1 - probabilities))
    (metric,) = make_metrics(SimpleNamespace(metrics=lambda: ["accuracy"], spec={"loss": loss}))
    metric.add(torch.from_numpy(right), torch.from_numpy(outputs))
    assert metric.value() == pytest.approx(float(np.mean(metrics.binary_accuracy(right, probabilities)))) == 0.6


@trains
@pytest.mark.parametrize("loss", ["categorical_crossentropy", "binary_crossentropy"])
def test_a_model_that_gives_probabilities_to_a_loss_that_takes_logits_is_refused(loss):
    from torch import nn

    from study.backends.pytorch.model_check import _check_gradients

    run, samples = run_of("p1b2", "pytorch"), data_of("p1b2").train
    run = replace(run, benchmark={**run.benchmark, "loss": loss})
    plain, last = nn.Sequential(nn.Linear(50, 10)), nn.Sigmoid() if loss == "binary_crossentropy" else nn.Softmax(1)
    _check_gradients(plain, run, samples)
    nothing = Arrays(np.zeros_like(samples.x), samples.y)  # of images; a layer without a bias gives 0 for them
    _check_gradients(nn.Sequential(nn.Linear(50, 10, bias=False)), run, nothing)
    with pytest.raises(StudyError, match=f"loss: {loss} takes its outputs before softmax or sigmoid"):
        _check_gradients(nn.Sequential(*plain, last), run, samples)


def judged(monkeypatch, build_model, last_batch=None, **keys):
    """The refusal of a model of 50 inputs and 10 outputs on two ranks; None without one."""
    from study.backends.pytorch import build, model_check

    run = run_of("p1b2", "pytorch")
    run = replace(run, parameters={**run.parameters, "gpus": 2, **keys})
    monkeypatch.setattr(build, "build_model", lambda *_: build_model())
    monkeypatch.setattr(model_check, "make_metrics", lambda _: [])
    try:
        model_check.check_model(None, run, data_of("p1b2").train, last_batch)
    except StudyError as error:
        return str(error)
    return None


def branching(takes):
    """A model with a layer that only some passes use. takes: from the outputs of the first layer, whether one does."""
    import torch
    from torch import nn

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.first, self.second, self.last = nn.Linear(50, 20), nn.Linear(20, 20), nn.Linear(20, 10)

        def forward(self, inputs):
            values = self.first(inputs)
            return self.last(self.second(values) if not self.training or takes(values) else values)

    return Model


@trains
@pytest.mark.parametrize("share", [0.5, 0.05])
def test_a_branch_that_not_every_step_takes_is_refused(monkeypatch, share):
    import torch

    why = judged(monkeypatch, branching(lambda _: bool(torch.rand(()) > share)))
    assert "second.weight, second.bias get no gradient in some steps" in why
    why = judged(monkeypatch, branching(lambda values: bool(values.mean() > -0.05)))
    assert "second.weight, second.bias get no gradient" in why, "it depends on the samples"
    assert judged(monkeypatch, branching(lambda _: False)).endswith("or set requires_grad to False"), "in none"
    assert judged(monkeypatch, branching(lambda _: True)) is None


@trains
def test_layers_that_cannot_be_trained_on_several_ranks_are_refused(monkeypatch):
    from torch import nn

    def normalized():
        return nn.Sequential(nn.Linear(50, 20), nn.BatchNorm1d(20), nn.Linear(20, 10))

    assert judged(monkeypatch, normalized) is None and judged(monkeypatch, normalized, last_batch=2) is None
    assert "the last batch of an epoch has one sample" in judged(monkeypatch, normalized, last_batch=1)
    assert judged(monkeypatch, lambda: nn.Linear(50, 10), last_batch=1) is None
    synchronized = nn.SyncBatchNorm.convert_sync_batchnorm
    assert "1 (SyncBatchNorm)" in judged(monkeypatch, lambda: synchronized(normalized()))
    assert judged(monkeypatch, lambda: synchronized(normalized()), gpus=1) is None

    class Table(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.last = nn.EmbeddingBag(4, 8, sparse=True), nn.Linear(8, 10)

        def forward(self, inputs):
            return self.last(self.table((inputs > 0).long()))

    assert "the model's table.weight get sparse gradients" in judged(monkeypatch, Table)


@trains
@pytest.mark.parametrize("own", ["127.0.0.1", "127.0.0.2"])
def test_the_store_of_the_ranks_listens_at_the_address_that_they_are_told(own, monkeypatch):
    """All of 127.0.0.0/8 leads to this host: whoever is not told the address stands for a stranger."""
    from torch import distributed

    from study.backends.pytorch import process_group
    from study.communication.roles import Place

    stores = []
    monkeypatch.setattr(distributed, "init_process_group", lambda *_, store, **__: stores.append(store))
    ((held,), stranger) = probe.hold_ports(1), "127.0.0.3"
    (port,) = probe.list_ports([held])
    process_group._make_default_group(Place(0, 1, "c", "k", ("a",), (f"{own}:{port}",)), "gloo")
    socket.create_connection((own, port), 5).close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((stranger, port), 5)
    stores[0].set("key", "value")
    assert stores[0].get("key") == b"value"


@pytest.mark.long  # three compilations by g++
@trains
def test_a_compiled_model_trains_alike_and_a_missing_compiler_is_one_line(monkeypatch):
    import torch

    plain, compiled = trainer_of("p1b2", "pytorch"), compiling_trainer_of(monkeypatch, "p1b2")
    one, other = epoch(plain), epoch(compiled)
    assert other["loss"] == pytest.approx(one["loss"], rel=1e-4)
    assert list(compiled.get_state()) == list(plain.get_state())  # a checkpoint is the same with and without

    monkeypatch.setenv("CXX", "/nothing")
    monkeypatch.setattr(torch._inductor.config.cpp, "cxx", ("/nothing",))
    with pytest.raises(StudyError, match="torch_compile: PyTorch cannot compile the model here: .+"):
        epoch(compiling_trainer_of(monkeypatch, "p1b1"))


@trains
def test_a_loss_that_is_not_finite_is_counted_to_its_step():
    trainer = trainer_of("p1b3", "pytorch")
    data = data_of("p1b3").train
    data.x[:] = 1e30
    trainer.set_learning_rate(1e30)
    trainer._data.train.x[:] = 1e30
    epoch(trainer)
    assert trainer.count_finite_steps() < 3


@pytest.mark.parametrize(
    ("point", "words"),
    [
        ({"framework": "pytorch", "strategy": "parameter_server"}, "parameter_server; use ddp or horovod"),
        ({"strategy": "ddp"}, "strategy: ddp is PyTorch's; give framework: pytorch"),
        ({"framework": "pytorch", "strategy": "ddp", "xla": True}, "xla: it is TensorFlow's; give two grids"),
        ({"framework": "pytorch", "strategy": "ddp", "cycle_time_ms": 3}, "cycle_time_ms: it is Horovod's"),
        ({"framework": "pytorch", "strategy": "ddp", "precision": "mixed_float16"}, "use mixed_bfloat16"),
        ({"torch_compile": True}, "it is PyTorch's; give framework: pytorch"),
        ({"framework": "pytorch", "strategy": "horovod", "torch_compile": True}, "use ddp"),
        ({"framework": "pytorch", "strategy": "ddp", "torch_compile": True, "profile": True}, "model as written"),
    ],
)
def test_what_pytorch_lacks_is_refused_in_the_plan(point, words):
    with pytest.raises(StudyError, match=words):
        expand(**point)


@trains
def test_emulated_ranks_average_their_gradients():
    """Two emulated ranks of 8 samples change the weights as one rank does with both batches, in their orders."""
    import torch

    emulating = trainer_of("p1b2", "pytorch", emulated_ranks=2, learning_rate_scaling="none")
    orders = [emulating._draw_order(rank, 0) for rank in (0, 1)]
    one = trainer_of("p1b2", "pytorch", batch=16, learning_rate_scaling="none")
    epoch(emulating)
    for first in range(0, SAMPLES, BATCH):
        chosen = np.concatenate([order[first : first + BATCH] for order in orders])
        x, y = data_of("p1b2").train.batch(chosen)
        one.step(torch.from_numpy(x), torch.from_numpy(y))
    for of_emulated, of_one in zip(emulating.get_trained_weights(), one.get_trained_weights(), strict=True):
        assert close(of_emulated, of_one, rel=1e-4, least=1e-5)
    assert emulating.count_steps_made() == 3


@trains
def test_metrics_are_of_all_samples_and_not_means_over_batches():
    """1 2 3 4 5 and 2 1 4 3 7: products of deviations 12, squares 10 and 21.2, squared errors 8."""
    import torch

    from study.workloads.pytorch import R2, Correlation, Mean

    correlation, r2 = Correlation("correlation"), R2("r2")
    for right, found in (([1, 2], [2, 1]), ([3, 4], [4, 3]), ([5], [7])):
        for metric in (correlation, r2):
            metric.add(torch.tensor(right).float()[:, None], torch.tensor(found).float()[:, None])
    assert correlation.value() == pytest.approx(12 / (10 * 21.2) ** 0.5, rel=1e-12)
    assert r2.value() == pytest.approx(1 - 8 / 10, rel=1e-12)
    for metric in (correlation, r2):
        metric.reset()
        metric.add(torch.full((7, 1), 0.1), torch.arange(7.0)[:, None])
        assert metric.value() == 0, "without any variance"
    for of_batch in (lambda right, outputs: outputs.mean(), lambda right, outputs: outputs[:, 0]):
        mean = Mean("mean", of_batch)
        mean.add(torch.zeros(3, 1), torch.ones(3, 1))
        mean.add(torch.zeros(1, 1), torch.zeros(1, 1))
        assert mean.value() == 0.75, "three samples and one"


@trains
def test_the_determination_of_several_outputs_is_over_all_values():
    """The values 0, 1, 2, 3 deviate from their mean by 5 squared in all, and one output is off by 1."""
    import torch

    from study.workloads.pytorch import R2

    r2 = R2("r2")
    right = torch.tensor([[0.0, 1.0], [2.0, 3.0]])
    r2.add(right[:1], torch.tensor([[0.0, 2.0]]))
    r2.add(right[1:], right[1:])
    assert r2.value() == pytest.approx(1 - 1 / 5)

"""Models that people trained with Horovod and TensorFlow: own layers, training steps, embeddings and metrics."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from examples import define, expand, make_data
from fake_communicator import FakeCommunicator
from ranks_of_models import MODELS

from study import workloads
from study.backends.tensorflow import devices, model_state, own_models, parameter_server
from study.backends.tensorflow.build import compile_model
from study.backends.tensorflow.local_replica import LocalReplica
from study.core import validation
from study.core.errors import StudyError
from study.core.paths import ROOT
from study.experiment import metric_names
from study.instruments import phases
from study.launch import variables
from study.launch.failure import diagnose_failure
from study.machines.run_layout import list_roles
from study.training import rank
from study.workloads.nt3 import tensorflow as nt3

devices.limit_threads(1)  # can be set only before TensorFlow's first use in this process
POINT = {"scaling": "weak", "epochs": 2, "loader": "npy", "sharding": "by_rank"}
SHAPE = (60, 1)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return tmp_path_factory.mktemp("data")


# Of two real ranks: {name: (model, grid keys)}. The last one fails, which ends the processes.
LAUNCHED = {
    "batch_normalisation": ("batch_normalisation", {}),
    "keras": ("own_step", {"training_loop": "keras"}),
    "custom": ("own_step", {"training_loop": "custom"}),
    "passes": ("embedding", {"backward_passes_per_step": 2}),
    "sparse": ("embedding", {}),
    "dense": ("embedding", {"gradient_compression": "fp16"}),
    "stops": ("stops", {}),
}


@pytest.fixture(scope="module")
def launched(data, tmp_path_factory):
    """The content of each run's ``metrics.json``, by its name in `LAUNCHED`; of the one that fails, how it failed."""
    folders, words = {}, []
    for name, (model, keys) in LAUNCHED.items():
        (planned,) = expand(**POINT, gpus=2, **keys)
        folders[name] = tmp_path_factory.mktemp(name)
        defined = define(planned, data_dir=str(data))
        defined.write(folders[name] / "run.yaml")
        make_data(planned, data)
        words += [folders[name], model]
    line = [sys.executable, ROOT / "scripts" / "horovodrun.py", "--gloo", "-np", "2", "-H", "localhost:2",
            sys.executable, Path(__file__).with_name("ranks_of_models.py"), *words]  # fmt: skip
    own = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", "TF_CPP_MIN_LOG_LEVEL": "2",
           "PYTHONPATH": str(ROOT / "scripts")}  # fmt: skip
    of_run = variables.define_run_variables(defined, folders[name], 300)
    done = subprocess.run(list(map(str, line)), capture_output=True, text=True, timeout=900,
                          env={**os.environ, **of_run, **own})  # fmt: skip
    said = (done.stdout + done.stderr).splitlines()
    assert done.returncode, "the last run should fail"
    (folders[name] / "phases.jsonl").write_text("")
    failure = diagnose_failure(folders[name], done.returncode, None, said)
    found = {each: folder / "metrics.json" for each, folder in folders.items() if each != name}
    assert [each for each, path in found.items() if not path.exists()] == [], "\n".join(said[-40:])
    return {each: json.loads(path.read_text()) for each, path in found.items()} | {name: failure}


@pytest.fixture
def train(data, tmp_path, monkeypatch):
    """Train a model on one rank, in this process: the content of ``metrics.json``."""

    def run(model, **point):
        train_alone(MODELS[model], monkeypatch, data, tmp_path, **point)
        return json.loads((tmp_path / "metrics.json").read_text())

    return run


def weights_of(metrics):
    return {each["final_weights_crc32"] for each in metrics["ranks"]}


@pytest.mark.slow
@pytest.mark.case("batchnorm-emulated", source="horovod/horovod #49 and #270", right="test loss as on two real ranks")
def test_batch_normalisation_of_emulated_ranks(train, launched):
    """Moving statistics are of rank 0's own batches, as on real ranks."""
    real, emulated = launched["batch_normalisation"], train("batch_normalisation", emulated_ranks=2)
    assert emulated["test"]["loss"] == pytest.approx(real["test"]["loss"], rel=1e-4)


@pytest.mark.slow
@pytest.mark.case("custom-train-step", source="horovod/horovod #2893", right="equal weights on all ranks, or refused")
def test_gradients_of_an_own_training_step_are_averaged(train, launched):
    keras, custom = launched["keras"], launched["custom"]
    assert len(weights_of(keras)) == 1
    assert all(each["gradients_averaged"] for each in keras["ranks"])
    assert weights_of(custom) == weights_of(keras), "this project's loop makes the user's steps"
    with pytest.raises(StudyError, match="train_step of its own: emulated_ranks makes the steps"):
        train("own_step", emulated_ranks=2)


@pytest.mark.slow
@pytest.mark.case("embedding-backward-passes", source="horovod/horovod #2806", right="trained, or refused in one line")
def test_an_embedding_with_several_backward_passes(launched):
    assert len(weights_of(launched["passes"])) == 1


@pytest.mark.case("custom-train-step-on-a-strategy", source="our own", right="refused with the key")
@pytest.mark.parametrize(
    "point",
    [{"backward_passes_per_step": 2}, {"strategy": "parameter_server", "servers": 1, "sharding": "none"},
     {"emulated_ranks": 2, "gpus": 1}],
)  # fmt: skip
def test_an_own_step_is_refused_where_its_key_would_not_hold(point):
    run = define(expand(**{**POINT, "gpus": 2, **point})[0])
    with pytest.raises(StudyError, match="has a train_step of its own"):
        own_models.check_model(MODELS["own_step"](SHAPE), run)


def built(build, monkeypatch, metrics=None, **point):
    """The compiled model of NT3's benchmark with another network."""
    benchmark = workloads.load_benchmark("nt3", define(expand(gpus=1)[0]).benchmark)
    monkeypatch.setattr(nt3.Benchmark, "build_model", lambda self, shape: build(shape))
    if metrics:
        monkeypatch.setattr(nt3.Benchmark, "metrics", lambda self: metrics())
    run = define(expand(**{**POINT, "gpus": 1, **point})[0])
    return compile_model(benchmark, run, FakeCommunicator(), SHAPE), benchmark, run


def heads(shape):
    """A sum of two heads, as duelling networks have."""
    import tf_keras as keras
    from tf_keras import layers

    given = layers.Input(shape)
    hidden = layers.Dense(4)(layers.Flatten()(given))
    return keras.Model(given, layers.Dense(1)(hidden) + layers.Dense(2)(hidden))


def nested(shape):
    import tf_keras as keras
    from tf_keras import layers

    inner = keras.Sequential([layers.Input((4,)), layers.Dense(3), layers.Dense(2)])
    given = layers.Input(shape)
    return keras.Model(given, inner(layers.Dense(4)(layers.Flatten()(given))))


def outputs_of_two(shape):
    import tf_keras as keras
    from tf_keras import layers

    given = layers.Input(shape)
    flat = layers.Flatten()(given)
    return keras.Model(given, [layers.Dense(1)(flat), layers.Dense(2)(flat)])


@pytest.mark.case("mixed-precision-head", source="tensorflow/tensorflow #38703", right="float32")
@pytest.mark.parametrize("build", [heads, nested, outputs_of_two, MODELS["own_step"]])
@pytest.mark.parametrize("precision", ["mixed_bfloat16", "float32"])
def test_the_output_is_float32_whatever_gives_it(build, precision, monkeypatch):
    import tensorflow as tf

    model, *_ = built(build, monkeypatch, precision=precision)
    found = {each.dtype.name for each in tf.nest.flatten(model(np.ones((3, *SHAPE), np.float32), training=True))}
    assert found == {"float32"}
    if build is heads and precision != "float32":
        hidden, *last = (each for each in model.layers if type(each).__name__ == "Dense")
        assert hidden.compute_dtype == "bfloat16"
        assert {each.compute_dtype for each in last} == {"float32"}, "nothing of the output was rounded to 16 bits"


@pytest.mark.case("precision-metric", source="keras-team/keras #5400", right="refused by name")
@pytest.mark.parametrize(
    "name",
    ["precision", "epochs", "samples", "test_accuracy", "val_x", "error_s", "Loss", "gpus", "status", "block",
     "train_mb", "busbw_8_gb_per_s", "checks", "losses"],
)  # fmt: skip
def test_a_metric_with_the_name_of_a_column_is_refused(name, monkeypatch):
    import tf_keras as keras

    with pytest.raises(StudyError, match=f"metrics: '{name}' "):
        built(heads, monkeypatch, lambda: ["accuracy", keras.metrics.MeanMetricWrapper(lambda y, p: p, name=name)])
    assert metric_names.explain_refusal("precision_metric") is None
    assert not any(
        map(metric_names.explain_refusal, ("accuracy", "mae", "auc", "auc_1", "recall", "f1_score", "r2", "loss"))
    )


@pytest.mark.case("auc-parameter-server", source="tensorflow/tensorflow #43645", right="auc, whatever else was made")
def test_names_of_metrics_do_not_depend_on_what_else_the_process_made(monkeypatch):
    import tf_keras as keras

    def several():
        return ["accuracy", keras.metrics.AUC(), keras.metrics.AUC(curve="PR"), keras.metrics.Recall(name="found")]

    keras.metrics.AUC()
    first, benchmark, run = built(MODELS["batch_normalisation"], monkeypatch, several)
    second, *_ = built(MODELS["batch_normalisation"], monkeypatch, several)
    twin = LocalReplica(benchmark, run, SHAPE)
    x, y = np.ones((4, *SHAPE), np.float32), np.eye(2, dtype=np.float32)[[0, 1, 0, 1]]
    names = [list(each.evaluate(x, y, verbose=0, return_dict=True)) for each in (first, second, twin._local)]
    assert names == [["loss", "accuracy", "auc", "auc_1", "found"]] * 3


@pytest.mark.case("outputs-with-names", source="our own", right="the same names in the copy that evaluates")
def test_names_of_outputs_do_not_depend_on_what_else_the_process_made(monkeypatch):
    first, *_ = built(outputs_of_two, monkeypatch)
    second, *_ = built(outputs_of_two, monkeypatch)
    assert first.output_names == second.output_names == ["dense", "dense_1"]


def counting(shape):
    """A layer that counts its calls in training, beside moving statistics."""
    import tf_keras as keras

    class Counting(keras.layers.Layer):
        def build(self, shape):
            self.calls = self.add_weight(name="calls", shape=(), dtype="int64", trainable=False)

        def call(self, x, training=None):
            if training:
                self.calls.assign_add(1)
            return x

    return keras.Sequential([keras.layers.Input(shape), keras.layers.Flatten(), Counting(),
                             keras.layers.Dense(2, activation="softmax")])  # fmt: skip


def train_alone(build, monkeypatch, data, folder, **point):
    (planned,) = expand(**{**POINT, "gpus": 1, **point})
    make_data(planned, data)
    kept = []
    write = rank._write_results
    monkeypatch.setattr(rank, "_write_results", lambda *given: (kept.append(given[3].trainer.model), write(*given)))
    monkeypatch.setattr(nt3.Benchmark, "build_model", lambda self, shape: build(shape))
    run = define(planned, data_dir=str(data))
    rank.run_rank(run, folder, phases.now(), lambda: FakeCommunicator())
    return kept[0]


@pytest.mark.slow
@pytest.mark.case("counter-of-emulated-ranks", source="our own", right="one count per step")
def test_a_counter_advances_as_on_one_rank(monkeypatch, data, tmp_path):
    model = train_alone(counting, monkeypatch, data, tmp_path, emulated_ranks=3)
    assert int(model.layers[1].calls) == int(model.optimizer.iterations)


def noisy(shape):
    from tf_keras import Sequential, layers

    return Sequential([layers.Input(shape), layers.Flatten(), layers.GaussianNoise(0.1),
                       layers.Dense(2, activation="softmax")])  # fmt: skip


def renormalising(shape):
    """A layer that scales its own weights in its forward pass, as spectral normalisation does."""
    import tensorflow as tf
    import tf_keras as keras

    class Renormalising(keras.layers.Dense):
        def call(self, x, training=None):
            if training:
                self.kernel.assign(self.kernel / tf.norm(self.kernel))
            return super().call(x)

    return keras.Sequential([keras.layers.Input(shape), keras.layers.Flatten(), Renormalising(2)])


@pytest.mark.case("states-that-cannot-be-kept", source="our own", right="refused with the key")
@pytest.mark.parametrize(
    ("build", "point", "words"),
    [
        (noisy, {"emulated_ranks": 2}, "emulated_ranks: a layer draws random numbers"),
        (noisy, {"checkpoint_epochs": 1}, "checkpoint_epochs: a layer draws random numbers"),
        (renormalising, {"emulated_ranks": 2}, "emulated_ranks: a layer changes trained weights"),
    ],
)
def test_a_state_that_cannot_be_kept_is_refused(build, point, words, monkeypatch):
    model, _, run = built(build, monkeypatch, **point)
    with pytest.raises(StudyError, match=words):
        model_state.check_state(model, run, (5, *SHAPE))


@pytest.mark.case("model-that-is-compiled", source="our own", right="refused")
def test_what_else_is_refused(monkeypatch):
    def compiled(shape):
        model = heads(shape)
        model.compile("sgd", "mse")
        return model

    def frozen(shape):
        model = heads(shape)
        model.trainable = False
        return model

    with pytest.raises(StudyError, match="compiled already"):
        built(compiled, monkeypatch)
    with pytest.raises(StudyError, match="no weights to train"):
        built(frozen, monkeypatch)


@pytest.mark.case("name-of-a-shared-module", source="our own", right="refused with the module")
@pytest.mark.parametrize("name", ["base", "images"])
def test_a_benchmark_with_the_name_of_a_shared_module_is_refused(name):
    with pytest.raises(StudyError, match="no complete class (Benchmark|Workload)"):
        workloads.load_workload(name, {})


@pytest.mark.case("file-named-like-a-key-of-a-dataset", source="our own", right="refused with the key")
@pytest.mark.parametrize("name", ["source", "target_quality", "checksums"])
def test_a_file_with_the_name_of_a_key_is_refused(name):
    files = validation.read_schema("benchmarks")["properties"]["files"]["propertyNames"]
    assert not validation.VALIDATOR(files).is_valid(name)
    assert validation.VALIDATOR(files).is_valid("train")


@pytest.mark.slow
@pytest.mark.case("gradients-of-an-embedding", source="our own", right="no size; that of all parameters if made dense")
def test_sparse_gradients_are_told(launched):
    found = [[each["sparse_gradients"] for each in launched[name]["ranks"]] for name in ("sparse", "dense")]
    assert found == [[True, True], [False, False]]


def tied(shape):
    """Its embedding is also its output layer, so its gradient is dense."""
    import tensorflow as tf
    import tf_keras as keras

    class Tied(keras.Model):
        def __init__(self):
            super().__init__()
            self.embedding = keras.layers.Embedding(16, 2)

        def call(self, x, training=None):
            hidden = tf.reduce_mean(self.embedding(tf.reshape(x, (-1, 60))), axis=1)
            return tf.nn.softmax(tf.matmul(hidden, self.embedding.embeddings, transpose_b=True)[:, :2])

    model = Tied()
    model.build((None, *shape))
    return model


def dropping(shape):
    """With this project's own dropout, as NT3 and most networks here have it."""
    from tf_keras import Sequential, layers

    from study.workloads.tensorflow import dropout

    return Sequential([layers.Input(shape), layers.Flatten(), dropout(0.5), layers.Dense(2, activation="softmax")])


@pytest.mark.case("embedding-under-a-strategy", source="our own", right="sparse: the workers send rows of a batch")
@pytest.mark.parametrize(
    ("make", "is_sparse"),
    [(MODELS["embedding"], True), (MODELS["batch_normalisation"], False), (tied, False), (dropping, False)],
)
def test_sparse_gradients_of_a_parameter_server_are_told(monkeypatch, make, is_sparse):
    monkeypatch.setattr(nt3.Benchmark, "build_model", lambda self, shape: make(shape))
    servers = {"strategy": "parameter_server", "servers": 1, "learning_rate_scaling": "none"}
    (planned,) = expand(**{**POINT, "sharding": "none"}, gpus=2, **servers)
    twin = LocalReplica(workloads.load_benchmark("nt3", planned.spec), define(planned), SHAPE)
    found = twin.has_sparse_gradients()
    assert found == is_sparse


def test_the_chief_tells_of_sparse_gradients_for_its_workers():
    """They do not see the model; the record reads the workers' entries."""
    (planned,) = expand(**{**POINT, "sharding": "none"}, gpus=2, strategy="parameter_server", servers=1,
                        learning_rate_scaling="none")  # fmt: skip
    chief = object.__new__(parameter_server.Chief)
    chief._run, chief._roles = define(planned), list_roles("parameter_server", 2, 1)
    chief.channel = SimpleNamespace(ask=lambda question: {number: {} for number in (1, 2, 3)}, lost=set())
    chief._place = SimpleNamespace(list_local_ranks=lambda processes: [0, 1])
    chief._traffic = SimpleNamespace(compute_means=lambda number: {})
    ranks, _ = chief.collect({"sparse_gradients": True})
    assert [(each["rank"], each["sparse_gradients"]) for each in ranks] == [(0, True), (1, True)]


@pytest.mark.slow
@pytest.mark.case("own-step-that-ends-training", source="our own", right="refused: fewer epochs than the run has")
def test_a_model_that_ends_training_early_fails(launched):
    failed = launched["stops"]
    assert "training ended after 1 of 2 epochs: the model sets stop_training" in failed["message"]


@pytest.mark.slow
@pytest.mark.case("compute-time-of-own-steps", source="our own", right="not measured: no single end of a step")
@pytest.mark.parametrize("model", ["accumulates", "applies_twice"])
def test_a_step_that_applies_gradients_not_once_has_no_compute_time(train, model):
    """Their times were added once in two steps, or twice in one, with the other ranks' in between."""
    (found,) = train(model)["ranks"]
    assert found["compute_per_step_s"] is None
    assert found["step_times"]["median_s"] > 0

"""Own models are checked before any run: what a run would not keep is refused, and what it keeps is not."""

import models_to_judge
import pytest
from examples import define, expand

from study.backends import model_check
from study.backends.tensorflow import devices
from study.core import configuration
from study.core.errors import StudyError
from study.experiment import metric_names
from study.launch import model_checks
from study.workloads import resnet50
from study.workloads.nt3 import tensorflow as nt3

devices.limit_threads(1)  # can be set only before TensorFlow's first use in this process
POINT = {"scaling": "weak", "epochs": 2, "loader": "npy", "sharding": "by_rank", "gpus": 2}
EMULATED = {"gpus": 1, "emulated_ranks": 2}
RESUMED = {"gpus": 1, "checkpoint_epochs": 1}
SERVED = {"strategy": "parameter_server", "servers": 1, "learning_rate_scaling": "none", "sharding": "none"}
STEP = "does not apply the gradients of all its weights through self.optimizer"


def judged(name, monkeypatch, **point):
    monkeypatch.setattr(nt3.Benchmark, "build_model", lambda self, shape: getattr(models_to_judge, name)(shape))
    (planned,) = expand(**{**POINT, **point})
    return model_check.explain_refusal(define(planned), planned.dataset.shape)


@pytest.mark.case("models-that-keep-promises", source="our own", right="not refused")
@pytest.mark.parametrize(
    ("name", "point"),
    [("plain", {}), ("penalties", EMULATED), ("several_outputs", {}), ("drawn_by_numpy", {}), ("accumulates", {}),
     ("stateful", {"batch_size": 20})],
)  # fmt: skip
def test_a_model_that_keeps_its_promises_is_not_refused(name, point, monkeypatch):
    found = judged(name, monkeypatch, **point)
    assert found is None


@pytest.mark.case("models-refused-before-any-run", source="our own", right="refused in one line")
@pytest.mark.parametrize(
    ("name", "point", "words"),
    [
        ("second_optimizer", {}, STEP),
        ("assigned_weights", {}, STEP),
        ("noise_in_step", RESUMED, "checkpoint_epochs: its train_step draws random numbers"),
        ("state_in_step", RESUMED, "checkpoint_epochs: its train_step uses Variable:0"),
        ("no_loss", {}, "train_step that returns no 'loss'"),
        ("no_test_loss", {}, "test_step returns no 'loss'"),
        ("logs_an_epoch", {}, "metrics: 'epoch' is a grid key or a column"),
        ("metric_of_a_layer", {}, "metrics: 'precision' is a grid key or a column"),
        ("output_named_test", {}, "metrics: 'test_loss' begins as a column"),
        ("several_inputs", {}, "has 2 inputs, and a sample is one array"),
        ("stateful", {"batch_size": 10}, "takes batches of 20 samples"),
        ("stateful", {"batch_size": 20, **EMULATED}, "emulated_ranks: a layer changes its state when it is evaluated"),
        ("stateful", {"batch_size": 20, **SERVED}, "evaluates a copy"),
        ("float64_layer", {}, "computes in float64, which precision: float32 does not tell"),
        ("float16_policy", {}, "changes a setting of the whole process (global_policy)"),
        ("seeded", {}, "changes a setting of the whole process (tf.random.set_seed)"),
        ("synchronized", {}, "synchronized=True, which knows TensorFlow's replicas"),
        ("drawn_by_tensorflow", {}, "two ranks with the same weights give different outputs"),
        ("rank_in_its_size", {}, "must not depend on the rank"),
        ("numpy_in_a_layer", EMULATED, "emulated_ranks: a layer draws random numbers or calls Python (PyFunc)"),
        ("drawn_when_traced", EMULATED, "other constants each time it is traced"),
        ("own_loss", SERVED, "has a compute_loss of its own: strategy"),
    ],
)
def test_a_model_that_would_break_a_promise_is_refused(name, point, words, monkeypatch):
    found = judged(name, monkeypatch, **point)
    assert found is not None
    assert words in found
    assert "\n" not in found


def test_the_next_model_is_judged_by_itself(monkeypatch):
    assert "global_policy" in judged("float16_policy", monkeypatch)
    assert judged("plain", monkeypatch) is None


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.long if name.startswith("resnet") else ())
    for name in sorted(model_checks.SHIPPED)
])  # fmt: skip
@pytest.mark.slow
def test_shipped_benchmarks_are_not_refused(name):
    """They are not checked in each plan. The large ones have smaller images and fewer classes: the same layers."""
    is_not_refused(name)


@pytest.mark.slow
def test_blocks_of_residual_networks_are_not_refused(monkeypatch):
    """ResNet-50 with each kind of its units: one that changes the width, one that halves the image, one that adds."""
    monkeypatch.setattr(resnet50.Workload, "blocks", (3, 1))
    is_not_refused("resnet50")


def is_not_refused(name):
    """The check of a shipped benchmark of small shape finds nothing."""
    shape = {"nt3": 60, "p1b1": 20, "p1b2": 20, "p1b3": 10}.get(name)
    spec = configuration.load_named("benchmarks", name)
    if spec.get("model", {}).get("image_size", 0) > 96:
        spec["model"] |= {"image_size": 96, "resize": 96, "classes": 10}
    (planned,) = expand(**POINT)
    run = define(planned)
    run = type(run)(**{**vars(run), "benchmark": {**run.benchmark, **spec, "name": name}})
    assert model_check.explain_refusal(run, {"features": shape or 0}) is None


@pytest.mark.case("metrics-that-differ-in-case", source="our own", right="refused")
def test_metrics_that_differ_in_their_case_only_are_refused():
    with pytest.raises(StudyError, match="'AUC' and 'auc' differ in their case only"):
        metric_names.check_metric_names(["accuracy", "AUC", "auc"])
    metric_names.check_metric_names(["auc", "auc"])  # of training and validation


@pytest.mark.case("files-that-differ-in-case", source="our own", right="refused")
@pytest.mark.parametrize("kind", ["studies", "machines", "benchmarks"])
def test_names_of_files_that_differ_in_their_case_only_are_refused(kind, tmp_path, monkeypatch):
    (tmp_path / "config" / kind).mkdir(parents=True)
    known = next(iter(configuration.list_files(kind)))
    (tmp_path / "config" / kind / f"{known.upper()}.yaml").write_text("description: other\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StudyError, match="differ in their case only"):
        configuration.check_name(kind, known)

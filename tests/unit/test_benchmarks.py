"""The four benchmarks: parameters worked out by hand, preprocessing by hand, and that each model learns."""

import json
import math
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
import tf_keras
from examples import define
from fake_communicator import FakeCommunicator
from test_training import make_data

from study import workloads
from study.backends.tensorflow import metrics, seeds
from study.backends.tensorflow.input import make_batches
from study.core import configuration
from study.core.paths import ROOT
from study.data import feature_scaling
from study.data.order import EpochOrder
from study.data.samples import Arrays, Joined, select_part
from study.experiment.expansion import load_study
from study.instruments import phases
from study.training import rank
from study.workloads import operations
from study.workloads.base import Table
from study.workloads.p1b1.tensorflow import Correlation
from study.workloads.p1b3.tensorflow import growth_sign_accuracy


def benchmark(name):
    return workloads.load_benchmark(name, configuration.load_named("benchmarks", name))


def dense(*widths):
    """Weights and biases of dense layers from the first width to the last."""
    return sum(a * b + b for a, b in zip(widths, widths[1:], strict=False))


@pytest.mark.parametrize(
    ("name", "shape", "parameters"),
    [
        # Two convolutions, pools of 1 and 10 (60,483 -> 60,464 -> 60,455 -> 6,045), three dense layers.
        ("nt3", (60_483, 1), (20 * 1 * 128 + 128) + (10 * 128 * 128 + 128) + dense(6_045 * 128, 200, 20, 2)),
        ("p1b1", (60_483,), dense(60_483, 2000, 600, 2, 600, 2000, 60_483)),
        ("p1b2", (28_204,), dense(28_204, 1024, 512, 256, 10)),
        ("p1b3", (1_001,), dense(1_001, 1000, 500, 100, 50, 1)),
    ],
)
def test_parameters_at_full_width(name, shape, parameters):
    """P1B2's are also printed in CANDLE's README."""
    made = benchmark(name)
    with tf.Graph().as_default():  # in which weights have shapes and no values: they would take a gigabyte
        assert made.build_model(shape).count_params() == parameters
    features = 1_000 if name == "p1b3" else shape[0]  # its network has the dose beside them
    assert operations.count_parameters(name, made.spec["model"], features) == parameters, "without building it"
    assert f"{parameters:,}" in (ROOT / "docs" / "benchmarks.md").read_text()


@pytest.mark.parametrize("name", ["nt3", "p1b1", "p1b2", "p1b3", "lenet"])
def test_metrics_have_the_names_that_are_independent_of_the_framework(name):
    made = benchmark(name)
    names = [each if isinstance(each, str) else getattr(each, "name", None) or each.__name__ for each in made.metrics()]
    assert tuple(names) == made.metric_names


def kinds(model):
    return [type(layer).__name__ for layer in model.layers]


def test_nt3_s_layers():
    model = benchmark("nt3").build_model((100, 1))
    assert kinds(model) == ["Conv1D", "MaxPooling1D"] * 2 + ["Flatten"] + ["Dense", "Dropout"] * 2 + ["Dense"]
    assert [layer.rate for layer in model.layers if type(layer).__name__ == "Dropout"] == [0.1, 0.1]


def test_activations_and_regularisation():
    p1b1, p1b2, p1b3 = (benchmark(name).build_model((30,)) for name in ("p1b1", "p1b2", "p1b3"))
    assert [layer.activation.__name__ for layer in p1b1.layers] == ["relu"] * 5 + ["sigmoid"]
    assert [layer.activation.__name__ for layer in p1b2.layers] == ["sigmoid"] * 4
    l2 = [(layer.kernel_regularizer, layer.activity_regularizer) for layer in p1b2.layers]
    assert all(float(each.l2) == pytest.approx(1e-5) for pair in l2[:3] for each in pair)
    assert l2[3] == (None, None)
    assert kinds(p1b3) == ["Dense", "Dropout"] * 4 + ["Dense"]
    assert p1b3.layers[-1].activation.__name__ == "linear"


def test_p1b3_s_initial_weights_are_candle_s():
    """CANDLE's ``normal``: a standard deviation of 0.05 before the output, which has Keras's own initialisation."""
    seeds.set_random_seed(1)  # 3 % are three standard errors of the smallest layer
    layers = [layer for layer in benchmark("p1b3").build_model((400,)).layers if type(layer).__name__ == "Dense"]
    weights = [layer.get_weights()[0] for layer in layers]
    assert [each.std() for each in weights[:4]] == pytest.approx([0.05] * 4, rel=0.03)
    assert abs(np.corrcoef(weights[0][:50, 0], weights[1][:50, 0])[0, 1]) < 0.9, "layers are drawn one by one"
    assert layers[-1].kernel_initializer.__class__.__name__ == "GlorotUniform"
    assert all(not layer.get_weights()[1].any() for layer in layers)


def array(rows):
    return np.array(rows, dtype=np.float32)


@pytest.mark.parametrize(
    ("fit", "train", "test", "scaled"),
    [
        ("fit_max_abs", [[1, -4, 0], [2, 2, 0]], [[-8, 1, 0]], [[0.125, -1, 0], [0.25, 0.5, 0], [-1, 0.25, 0]]),
        ("fit_min_max", [[1, -4, 3], [3, 0, 3]], [[5, 4, 3]], [[0, 0, 0], [0.5, 0.5, 0], [1, 1, 0]]),
    ],
)
def test_scaling_is_over_both_sets(fit, train, test, scaled):
    parts = array(train), array(test)
    scaler = getattr(feature_scaling, fit)(*parts)
    for part in parts:
        scaler.apply(part)
    assert np.array_equal(np.concatenate(parts), array(scaled))


def test_missing_values_become_the_mean():
    matrix = array([[1, 7, np.nan], [np.nan, 7, np.nan], [3, 7, np.nan]])
    feature_scaling.fit_standard(matrix).apply(matrix)
    deviation = np.sqrt(2 / 3)
    assert matrix == pytest.approx(array([[-1 / deviation, 0, 0], [0, 0, 0], [1 / deviation, 0, 0]]))


def test_nt3_s_preprocessing():
    train = array([[1, 2, -4], [0, 4, 2]])
    data = benchmark("nt3").preprocess({"train": Table(train, [[0, 1]]), "test": Table(train.copy(), [[0, 1]])}, 1)
    assert data.train.x.shape == (2, 2, 1)
    assert np.array_equal(data.train.y, array([[0, 1], [1, 0]]))
    assert np.array_equal(data.train.x[..., 0], array([[0.5, -1], [1, 0.5]]))
    assert data.validation is data.test


def test_p1b1_validates_on_its_last_rows_and_learns_its_input():
    train = np.column_stack([np.zeros(20), np.arange(20)]).astype(np.float32)
    test = array([[0, 40]])
    data = benchmark("p1b1").preprocess({"train": Table(train, [["x"]]), "test": Table(test, [["x"]])}, 1)
    assert data.train.arrays()[0].ravel() == pytest.approx(np.arange(18) / 40)
    assert data.validation.arrays()[0].ravel() == pytest.approx(np.array([18, 19]) / 40)
    assert data.train.y is data.train.x
    assert data.features == 1


def test_p1b2_validates_on_its_first_rows_after_a_shuffle():
    train = np.column_stack([np.arange(20) % 3, np.arange(20)]).astype(np.float32)
    tables = {"train": Table(train, [["breast", "lung", "skin"]]), "test": Table(array([[0, 0]]), [["skin"]])}
    data = benchmark("p1b2").preprocess(tables, seed=1)
    x, y = (np.concatenate(both) for both in zip(data.validation.arrays(), data.train.arrays(), strict=True))
    order = np.round(x.ravel() * 19).astype(int)
    assert len(data.validation) == 2
    assert sorted(order) == list(range(20))
    assert list(order) != list(range(20))
    assert np.array_equal(y.argmax(axis=1), order % 3)
    assert data.test.y.argmax() == 2, "a type has one place, whichever file it is first in"
    assert data.train.y.shape[1] == 10


def p1b3_tables(responses):
    """Two drugs and two cell lines in the wide files; ``responses``: (drug, cell, log concentration, growth)."""
    drugs, cells = ["10", "20", "30"], ["A:1", "B:2", "C:3"]
    codes = [[drugs.index(drug), cells.index(cell), *numbers] for drug, cell, *numbers in responses]
    return {
        "response": Table(array(codes), [drugs, cells]),
        "expression": Table(array([[1, 5, 0], [0, 3, 4]]), [["A.1", "B.2"]]),
        "descriptors": Table(array([[0, 1], [1, 3]]), [["10", "20"]]),
        "test_cell_lines": Table(array([[0]]), [["B:2"]]),
        "test_drugs": Table(array([[0]]), [["20"]]),
    }


def test_p1b3_filters_and_splits():
    """Both in the lists: testing. Neither: training. Else, without features or outside -5 to -4: left out."""
    training_rows = [("10", "A:1", -4.5, -50.0 - n) for n in range(20)]
    training_rows += [("10", "A:1", -5.0, -90.0), ("10", "A:1", -4.0, -91.0)]  # the limits belong to it
    left_out = [("10", "B:2", -4.5, -1), ("20", "A:1", -4.5, -1), ("30", "A:1", -4.5, -1), ("10", "C:3", -4.5, -1),
                ("10", "A:1", -5.5, -1), ("10", "A:1", -3.5, -1), ("10", "A:1", -4.5, np.nan)]  # fmt: skip
    tables = p1b3_tables([*training_rows, *left_out, ("20", "B:2", -4.25, -80)])
    data = benchmark("p1b3").preprocess(tables, seed=1)
    assert (len(data.train), len(data.validation), len(data.test)) == (20, 2, 1)
    growth = np.concatenate([data.train.y, data.validation.y]).ravel()
    assert sorted(growth) == pytest.approx(sorted(row[3] / 100 for row in training_rows))
    x, y = next(iter(make_batches(data.test, 1)))
    # expression of B:2 (5, 0) and descriptor of 20 (3), standardised over two rows each, then the concentration
    assert x.numpy() == pytest.approx(array([[1, -1, 1, -4.25]]))
    assert y.numpy() == pytest.approx(array([[-0.8]]))
    assert data.features == 3


def test_p1b3_balances_as_candle_does():
    bands = [(0.0, 30), (49.0, 100), (50.0, 50), (100.0, 50), (150.0, 100)]  # 50 belongs to the band above, 100 not
    rows = [("10", "A:1", -4.5, growth) for growth, number in bands for _ in range(number)]
    data = benchmark("p1b3").preprocess(p1b3_tables([*rows, ("20", "B:2", -4.5, -1)]), seed=1)
    growth = np.concatenate([data.train.y, data.validation.y]).ravel() * 100
    kept = [int(np.isclose(growth, g).sum()) for g in (50.0, 100.0)]
    assert sum(kept) == 18
    assert [int(np.isclose(growth, g).sum()) for g, _ in bands] == [30, 70, *kept, 1]


def test_joining_never_makes_the_whole_matrix():
    """Batches are the rows of an ordinary join; what is in memory stays small."""
    random = np.random.default_rng(0)
    tables = tuple(random.random((rows, 50), dtype=np.float32) for rows in (6, 9))
    keys = tuple(random.integers(len(table), size=10_000) for table in tables)
    values, y = (random.random((10_000, 1), dtype=np.float32) for _ in range(2))
    samples = Joined(values, tables, keys, y)
    joined = np.concatenate([tables[0][keys[0]], tables[1][keys[1]], values], axis=1)
    found = [x.numpy() for x, _ in make_batches(samples.rows(slice(100, 400)), 64)]
    assert np.array_equal(np.concatenate(found), joined[100:400])
    held = sum(array.nbytes for array in (values, y, *tables, *keys))
    assert held < joined.nbytes / 8


@pytest.mark.parametrize(("samples", "size"), [(100, 3), (7, 7), (64, 2)])
def test_parts_do_not_overlap_and_are_equally_many(samples, size):
    x = np.arange(samples, dtype=np.float32)
    parts = [select_part(Arrays(x, x), rank, size) for rank in range(size)]
    seen = np.concatenate([each.arrays()[0] for each in parts])
    assert len(set(seen)) == len(seen) == samples // size * size
    assert {len(each) for each in parts} == {samples // size}
    assert parts[1].arrays()[0].tolist() == x[1::size][: samples // size].tolist()


def test_shuffling_is_anew_every_epoch_and_order_is_kept_without():
    samples = Arrays(np.arange(50, dtype=np.float32), np.arange(50, dtype=np.float32))
    order = EpochOrder(seed=7)
    shuffled = make_batches(samples, 10, order)
    epochs = []
    for epoch in (0, 1, 0):
        order.set(epoch)
        epochs.append(np.concatenate([x.numpy() for x, _ in shuffled]).tolist())
    assert sorted(epochs[0]) == sorted(epochs[1]) == list(range(50))
    assert epochs[0] != epochs[1]
    assert epochs[0] == epochs[2], "an epoch's order does not depend on what came before it"
    assert shuffled.cardinality() == 5
    ordered = np.concatenate([x.numpy() for x, _ in make_batches(samples, 10)])
    assert ordered.tolist() == list(range(50))


def trained(tmp_path, run):
    make_data(run, tmp_path / "data")
    communicator = FakeCommunicator()
    rank.run_rank(
        define(run, data_dir=str(tmp_path / "data")), tmp_path / "run", phases.now(), lambda **_: communicator
    )
    tested = json.loads((tmp_path / "run" / "metrics.json").read_text())["test"]
    return pd.read_csv(tmp_path / "run" / "history.csv"), tested


def laptop_run(name):
    """The longest one-rank run of a benchmark in the study icpp2019_laptop."""
    runs = [run for run in load_study("icpp2019_laptop").runs if run.dataset.benchmark == name and run.gpus == 1]
    return max(runs, key=lambda run: run.epochs_per_rank)


@pytest.mark.slow
def test_nt3_learns_as_fast_as_the_paper_s(tmp_path):
    """icpp2019, Figure 6: an accuracy of 1 after 8 epochs."""
    history, tested = trained(tmp_path, laptop_run("nt3"))
    assert len(history) == 8
    assert history.accuracy.iloc[0] < 0.9
    assert history.accuracy.iloc[-1] > 0.9
    assert tested["accuracy"] > 0.95


@pytest.mark.slow
@pytest.mark.long
def test_p1b1_learns(tmp_path):
    history, tested = trained(tmp_path, laptop_run("p1b1"))
    assert history.loss.iloc[-1] < 0.5 * history.loss.iloc[0]
    assert tested["correlation"] > 0.7


@pytest.mark.slow
@pytest.mark.long
def test_p1b2_learns_with_16_epochs(tmp_path):
    """icpp2019, section 4.2.3: 16 epochs or more give a high accuracy."""
    history, tested = trained(tmp_path, laptop_run("p1b2"))
    assert history.loss.iloc[-1] < 0.5 * history.loss.iloc[0]
    assert history.accuracy.iloc[1] < 0.5
    assert tested["accuracy"] > 0.9


@pytest.mark.slow
def test_p1b3_learns_in_its_one_epoch(tmp_path):
    """R2 of 0 is what the mean growth would give; half of the signs are negative."""
    history, tested = trained(tmp_path, laptop_run("p1b3"))
    assert 0.05 < tested["r2"] < 1
    assert 0.55 < tested["growth_sign_accuracy"] < 1
    assert "accuracy" not in tested
    assert {"growth_sign_accuracy", "val_growth_sign_accuracy", "r2", "val_r2"} <= set(history)


def test_growth_sign_accuracy_is_candle_s_share_of_equal_classes():
    """CANDLE: ``numpy.digitize(y, [0.0])``, so a growth of exactly 0 is in the upper class."""
    true, found = np.array([[-0.5], [0.0], [0.2], [0.3], [0.0]]), np.array([[-0.1], [0.1], [-0.2], [0.0], [-1e-6]])
    share = np.mean(growth_sign_accuracy(true.astype(np.float32), found.astype(np.float32)))
    assert share == pytest.approx(np.mean(np.digitize(true, [0.0]) == np.digitize(found, [0.0])))
    assert share == pytest.approx(0.6)


def test_p1b1_s_correlation_is_of_all_values_and_not_a_mean_over_batches():
    """1 2 3 4 5 and 2 1 4 3 7: products of deviations 12, squares 10 and 21.2. The mean over batches is -2/3."""
    metric = Correlation("correlation")
    for right, found in (([[1, 2]], [[2, 1]]), ([[3, 4]], [[4, 3]]), ([[5]], [[7]])):
        metric.update_state(tf.constant(right, tf.float32), tf.constant(found, tf.float32))
    assert float(metric.result()) == pytest.approx(12 / math.sqrt(10 * 21.2), rel=1e-12)
    metric.reset_state()
    metric.update_state(tf.fill([7, 3], 0.1), tf.random.stateless_uniform([7, 3], [1, 2]))
    assert float(metric.result()) == 0, "without any variance"
    metric.update_state(tf.constant([[math.nan]]), tf.constant([[1.0]]))
    assert math.isnan(float(metric.result()))


def test_a_last_batch_of_fewer_samples_weighs_less():
    """A metric of one's own gives one value of a batch: 1 of three samples, 0 of one."""

    def of_batch(y_true, y_pred):
        return tf.reduce_mean(y_pred)

    (made,) = metrics.make_metrics(SimpleNamespace(metrics=lambda: [of_batch]))
    metric = tf_keras.metrics.MeanMetricWrapper(made, made.__name__)
    metric.update_state(tf.zeros((3, 1)), tf.ones((3, 1)))
    metric.update_state(tf.zeros((1, 1)), tf.zeros((1, 1)))
    assert (metric.name, float(metric.result())) == ("of_batch", 0.75)

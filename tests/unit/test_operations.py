"""Operations of training: worked out by hand, and compared with TensorFlow's own count of the model's graph."""

import pytest

from study import workloads
from study.core import configuration
from study.records.utilisation import flop_columns
from study.workloads import operations

FULL_WIDTH = {"nt3": 60_483, "p1b1": 60_483, "p1b2": 28_204, "p1b3": 1_000}


def spec(name):
    return configuration.load_named("benchmarks", name)


def forward_flop(name, model, features):
    """Operations of the forward pass on one sample."""
    return 2 * sum(layer.multiply_adds for layer in operations.list_layers(name, model, features))


def test_a_small_nt3_by_hand():
    """30 values; 4 filters of width 5: 26 places; 2 filters of width 3, stride 2: 12 places; a pool of 4 leaves 3."""
    first = {"filters": 4, "width": 5, "stride": 1, "pool": 1}
    second = {"filters": 2, "width": 3, "stride": 2, "pool": 4}
    model = {"convolutions": [first, second], "dense": [7], "classes": 2}
    layers = [26 * 5 * 4, 12 * 3 * 4 * 2, 3 * 2 * 7, 7 * 2]
    assert forward_flop("nt3", model, 30) == 2 * sum(layers)
    assert operations.count_training_flop("nt3", model, 30) == 2 * (3 * sum(layers) - layers[0])


def test_nt3_at_full_width_takes_68_tflop_an_epoch():
    """60,464 and 60,455 places of the convolutions, 6,045 after the pool; nearly all is in the second convolution."""
    first, second = 60_464 * 20 * 128, 60_455 * 10 * 128 * 128
    dense = 6_045 * 128 * 200 + 200 * 20 + 20 * 2
    counted = operations.count_training_flop("nt3", spec("nt3")["model"], 60_483)
    assert counted == 2 * (2 * first + 3 * second + 3 * dense)
    assert 1_120 * counted == pytest.approx(68.3e12, rel=1e-3)


def graph_operations(name, shape):
    """{operation: FLOP} of the forward pass on one sample, and of that with its gradients, by TensorFlow's profiler."""
    import tensorflow as tf

    profiler = tf.compat.v1.profiler
    options = profiler.ProfileOptionBuilder(profiler.ProfileOptionBuilder.float_operation()).with_empty_output().build()

    def count(graph):
        found, nodes = {}, [profiler.profile(graph, options=options, cmd="op")]
        while nodes:
            node = nodes.pop()
            found[node.name] = node.float_ops
            nodes += node.children
        return found

    with tf.Graph().as_default() as graph:  # its variables take no memory
        model = workloads.load_benchmark(name, spec(name)).build_model(shape)
        output = model(tf.compat.v1.placeholder(tf.float32, (1, *shape)), training=False)
        forward = count(graph)
        tf.gradients(tf.reduce_sum(output), model.trainable_variables)
        return forward, count(graph)


@pytest.mark.slow
@pytest.mark.parametrize("name", FULL_WIDTH)
def test_tensorflow_counts_the_same(name):
    """TensorFlow's graph has a gradient of the first dense layer's input, too, which is pruned before it runs."""
    features = FULL_WIDTH[name]
    shape = {"nt3": (features, 1), "p1b3": (features + 1,)}.get(name, (features,))
    model = spec(name)["model"]
    forward, both = graph_operations(name, shape)
    ours = forward_flop(name, model, features)
    assert forward["MatMul"] + forward.get("Conv2D", 0) == ours
    if name != "nt3":  # for convolutions, TensorFlow estimates the backward pass from padded sizes
        pruned = 2 * operations.list_layers(name, model, features)[0].multiply_adds
        assert both["MatMul"] - pruned == operations.count_training_flop(name, model, features)


PARAMETERS = {"benchmark": "p1b3", "gpus": 4, "compute": "measured"}


def record(**changes):
    return {
        "machine": "m",
        "parameters": PARAMETERS,
        "status": "ok",
        "ensemble": None,
        "training": {"throughput_samples_per_s": 10.0},
        "workload": {"features": 1_000},
        "resumed_after_epoch": None,
        **changes,
    }


def test_utilisation_is_of_one_rank_s_peak():
    found = flop_columns(record(), spec("p1b3")["model"], peak=1e9)
    flop = 3 * 3_112_100 - 2 * 1_001_000
    assert found["model_flop_per_sample"] == flop
    assert found["flop_per_s"] == 10 * flop
    assert found["flop_per_s_per_rank"] == 10 * flop / 4
    assert found["flop_utilisation"] == pytest.approx(10 * flop / 4 / 1e9)
    assert found["flop_reason"] is None


@pytest.mark.parametrize(
    ("precision", "peak", "expected"),
    [
        ("float32", 1e9, 1e9),
        ("float32", {"float32": 1e9, "mixed_float16": 8e9}, 1e9),
        ("mixed_float16", {"float32": 1e9, "mixed_float16": 8e9}, 8e9),
        ("mixed_bfloat16", {"float32": 1e9, "mixed_float16": 8e9}, None),
        ("mixed_float16", 1e9, None),
    ],
)
def test_the_peak_is_that_of_the_run_s_precision(precision, peak, expected):
    computed = record(parameters={**PARAMETERS, "precision": precision})
    found = flop_columns(computed, spec("p1b3")["model"], peak)
    if expected is None:
        assert found["flop_utilisation"] is None
        assert found["flop_reason"] == (
            f"config/machines/m.yaml has no peak_flop_per_s_per_rank of precision {precision}")  # fmt: skip
    else:
        assert found["flop_utilisation"] == pytest.approx(found["flop_per_s_per_rank"] / expected)

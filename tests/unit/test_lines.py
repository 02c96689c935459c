"""The loader ``lines``: lines stay text, and are decoded and scaled anew for every batch, to the same bits."""

import os

os.environ["TF_USE_LEGACY_KERAS"] = "1"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import pytest
from examples import expand

from study import workloads
from study.backends.tensorflow.blocks import dataset
from study.backends.tensorflow.input import gatherer
from study.core import configuration
from study.core.errors import StudyError
from study.data import text_table
from study.data.conversion import convert
from study.data.loaders import load_with_lines, read_sidecar
from study.data.samples import Arrays, part
from study.data.tabular import Form
from study.data.text_lines import LineSamples, TextLines
from study.ensembles.order import Order
from study.workloads import p1b1
from study.workloads.base import Data, Table

SHAPE = {"train_samples": 30, "test_samples": 10, "features": 60}
ROWS = [4, 0, 4, 17]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """``data(benchmark, loader)``: its samples, as a rank makes them."""
    folder, made = tmp_path_factory.mktemp("lines"), set()

    def samples(name, loader):
        benchmark = workloads.get(name, configuration.load_named("benchmarks", name))
        tables = {}
        for file, spec in benchmark.spec["files"].items():
            raw, matrix, sidecar = (folder / f"{name}-{file}.{end}" for end in ("csv", "npy", "json"))
            if (name, file) not in made:
                raw.write_bytes(b"".join(benchmark.synthetic_blocks(file, SHAPE, 1)))
                convert(raw, matrix, sidecar, Form.of(spec))
                made.add((name, file))
            loaded, lines = load_with_lines(loader, matrix if loader == "npy" else raw, sidecar, spec)
            tables[file] = Table(loaded, [code["values"] for code in read_sidecar(sidecar)["codes"]], lines=lines)
        return benchmark.samples(tables, 3)

    return samples


def batch(samples, rows=ROWS):
    return [each.numpy() for each in gatherer(samples)(np.array(rows))]


def assert_same(found, expected):
    assert [(each.shape, each.dtype, each.tobytes()) for each in found] == [
        (each.shape, each.dtype, each.tobytes()) for each in expected
    ]


@pytest.mark.parametrize("name", ["nt3", "p1b1", "p1b2"])
def test_batches_have_the_bits_of_a_matrix_s(data, name):
    lines, matrix = data(name, "lines"), data(name, "npy")
    assert isinstance(lines.train, LineSamples)
    assert lines.features == matrix.features
    for split in ("train", "validation", "test"):
        found, expected = getattr(lines, split), getattr(matrix, split)
        assert (len(found), found.shape) == (len(expected), expected.shape)
        assert_same(batch(found, [1, 0, 1]), batch(expected, [1, 0, 1]))
    assert_same(batch(part(lines.train, 1, 2), [3, 2]), batch(part(matrix.train, 1, 2), [3, 2]))


def test_a_benchmark_that_takes_numbers_of_lines_is_refused(data, monkeypatch):
    """They are not scaled, and would not be decoded by batch."""

    def arrange(self, tables, seed):
        x = tables["train"].numbers
        return Data(Arrays(x, x), Arrays(x, x), Arrays(x, x), x.shape[1])

    monkeypatch.setattr(p1b1.Workload, "arrange", arrange)
    data("p1b1", "npy")
    with pytest.raises(StudyError, match="p1b1: its `arrange` takes numbers that are to be decoded by batch"):
        data("p1b1", "lines")


def test_every_batch_is_decoded_when_it_is_made(data, monkeypatch):
    train, decoded = data("nt3", "lines").train, []
    parser = text_table.block_parser

    def counted(form, table):
        parse = parser(form, table)

        def parse_and_count(text, target, codes):
            decoded.append(len(target))
            return parse(text, target, codes)

        return parse_and_count

    monkeypatch.setattr(text_table, "block_parser", counted)
    blocks = dataset(train, Order(3, len(train), 8, 2, is_shuffled=True), 0, 1)
    assert sum(len(x) for x, _ in blocks) == 2 * len(train)
    assert sum(decoded) == 2 * len(train)
    assert len(train.lines.content) > 0.9 * sum(len(str(value)) for value in batch(train)[0].ravel())


def test_lines_without_an_end_or_with_a_header(tmp_path):
    (tmp_path / "x.csv").write_bytes(b"name,a,b\r\nm,1,na\r\nk,-2.5,3")
    form = Form.of({"header": True, "codes": [{"column": "name"}], "missing": ["na"]})
    lines = TextLines.read(tmp_path / "x.csv", form)
    assert len(lines) == 2
    expected = np.array([[0, -2.5, 3], [1, 1, np.nan]], np.float32)
    assert np.array_equal(lines.matrix([["k", "m"]])[[1, 0]], expected, equal_nan=True)
    assert np.array_equal(lines.numbers(np.array([1, 0, 1])), expected[[0, 1, 0], 1:], equal_nan=True)
    assert lines.numbers(np.array([], np.int64)).shape == (0, 2)


@pytest.mark.parametrize("text", [b"", b"a,b\n"])
def test_a_file_without_lines(tmp_path, text):
    (tmp_path / "x.csv").write_bytes(text)
    assert len(TextLines.read(tmp_path / "x.csv", Form.of({"header": True}))) == 0


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"input_pipeline": "keras_arrays"}, "input_pipeline: loader: lines decodes lines one batch at a time"),
        ({"staging": "node_broadcast"}, "staging: matrices are broadcast, and loader: lines keeps text"),
        ({"cache_samples": True}, "cache_samples: loader: lines is there to decode lines for every batch"),
        (
            {"benchmark": "p1b3", "scaling": "batch", "batch_scaling": "linear", "batch_size": 20},
            "loader: lines: p1b3's samples are",
        ),
        ({"strategy": "parameter_server", "servers": 1, "scaling": "weak"}, "the chief sends each worker its samples"),
    ],
    ids=str,
)
def test_what_cannot_use_lines_is_refused(changed, words):
    with pytest.raises(StudyError) as refused:
        expand(**{"loader": "lines", "scaling": "weak", "epochs": 1, "gpus": 2, **changed})
    assert words in str(refused.value)

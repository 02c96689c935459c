"""Wide tables are read by blocks of lines, each as one column: numbers, what stands before them, and their count."""

import numpy as np
import pytest

from study.data import wide
from study.data.tabular import Form

NAMED = Form.of({"header": True, "codes": [{"column": "type"}], "drop": ["case"]})


def read(path, form):
    """(matrix of the numbers, texts before them)."""
    names = wide.column_names(path, form)
    leading = wide.leading_columns(form, names)
    table = wide.layout(path, form, leading, len(names))
    matrix = np.empty((table.rows, len(names) - leading), dtype=np.float32)
    return matrix, wide.fill(matrix, table, form)


@pytest.mark.parametrize("block_bytes", [1, 40, 10**6])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_whatever_the_blocks(tmp_path, monkeypatch, block_bytes, line_end):
    monkeypatch.setattr(wide, "BLOCK_BYTES", block_bytes)
    expected = np.random.default_rng(1).normal(size=(7, 5)).astype(np.float32)
    lines = [
        "case,type,a,b,c,d,e",
        *(f"c{i},t{i % 2}," + ",".join(map(repr, row.tolist())) for i, row in enumerate(expected)),
    ]
    (tmp_path / "t.csv").write_bytes("".join(line + line_end for line in lines).encode())
    matrix, texts = read(tmp_path / "t.csv", NAMED)
    assert matrix.tobytes() == expected.tobytes()
    assert texts == [[f"c{i}" for i in range(7)], [f"t{i % 2}" for i in range(7)]]


def test_names_longer_than_a_look_at_the_line(tmp_path):
    name = "n" * (2 * wide.HEAD_BYTES)
    (tmp_path / "t.csv").write_text(f"case,type,a\n{name},t,1.5\n")
    matrix, texts = read(tmp_path / "t.csv", NAMED)
    assert (matrix.tolist(), texts) == ([[1.5]], [[name], ["t"]])


def test_numbers_that_arrow_does_not_take_and_pandas_does(tmp_path):
    (tmp_path / "t.csv").write_text("case,type,a,b\nc,t,+1.5, 2\nc,t,.5,-5.\n")
    assert read(tmp_path / "t.csv", NAMED)[0].tolist() == [[1.5, 2], [0.5, -5]]


def test_missing_values(tmp_path):
    form = Form.of({"header": True, "codes": [], "missing": ["na", ""]})
    (tmp_path / "t.csv").write_text("a,b\nna,1\n,2\n3,\n")
    matrix, _ = read(tmp_path / "t.csv", form)
    assert np.array_equal(matrix, [[np.nan, 1], [np.nan, 2], [3, np.nan]], equal_nan=True)


@pytest.mark.parametrize(
    ("lines", "first_row"),
    [(["c,t,1,2", "c,t,1"], 1), (["c,t,1,2", "c,t,1,2,3", "c,t,1"], 1), (["c,t,1,2"] * 3 + ["c,t,1,x"], 3), (["c"], 0)],
)
def test_the_first_block_that_is_wrong_is_told(tmp_path, monkeypatch, lines, first_row):
    """A short line and a longer one after it are as many values as there should be."""
    monkeypatch.setattr(wide, "BLOCK_BYTES", 1)
    (tmp_path / "t.csv").write_text("\n".join(["case,type,a,b", *lines, ""]))
    with pytest.raises(wide.BlockError) as error:
        read(tmp_path / "t.csv", NAMED)
    assert error.value.first_row == first_row


@pytest.mark.parametrize(
    ("spec", "names", "leading"),
    [
        ({"header": False, "codes": [{"column": 0, "values": [0, 1]}]}, [0, 1, 2], 1),
        ({"header": True, "codes": [{"column": "type"}], "drop": ["case"]}, ["case", "type", "a"], 2),
        ({"header": True, "codes": [{"column": "type"}]}, ["a", "type", "b"], None),
        ({"header": True, "codes": [], "drop": ["b"]}, ["a", "b"], None),
        ({"header": True, "codes": [], "keep": ["a"]}, ["a"], None),
        ({"header": True, "codes": [{"column": "a"}]}, ["a"], None),
    ],
)
def test_which_tables_are_read_this_way(spec, names, leading):
    assert wide.leading_columns(Form.of(spec), names) == leading

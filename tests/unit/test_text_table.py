"""Tables are read by blocks of lines: numbers, categories, and the count of values in each line."""

import random
import struct

import numpy as np
import pytest

from study.data import text_table
from study.data.tabular import Form

NAMED = Form.from_spec({"header": True, "codes": [{"column": "type"}], "drop": ["case"]})


def read(path, form):
    """(matrix of the numbers, texts of each column of categories)."""
    table = text_table.find_columns(form, text_table.read_column_names(path, form))
    lines = text_table.find_layout(path, form)
    matrix = np.empty((lines.rows, table.numbers), dtype=np.float32)
    found = text_table.fill_matrix(matrix, lines, form, table)
    return matrix, [texts_of(column, lines.rows) for column in found]


def texts_of(column, rows):
    """The text of each row of a column of categories."""
    places = np.empty(rows, dtype=np.float32)
    column.write(places, np.arange(len(column.texts)))
    return [column.texts[int(place)] for place in places]


@pytest.mark.parametrize("block_bytes", [1, 40, 10**6])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_whatever_the_blocks(tmp_path, monkeypatch, block_bytes, line_end):
    monkeypatch.setattr(text_table, "BLOCK_BYTES", block_bytes)
    expected = np.random.default_rng(1).normal(size=(7, 5)).astype(np.float32)
    lines = [
        "case,type,a,b,c,d,e",
        *(f"c{i},t{i % 2}," + ",".join(map(repr, row.tolist())) for i, row in enumerate(expected)),
    ]
    (tmp_path / "t.csv").write_bytes("".join(line + line_end for line in lines).encode())
    matrix, texts = read(tmp_path / "t.csv", NAMED)
    assert matrix.tobytes() == expected.tobytes()
    assert texts == [[f"t{i % 2}" for i in range(7)]]


@pytest.mark.parametrize(
    ("lines", "first_row"),
    [(["c,t,1,2", "c,t,1"], 1), (["c,t,1,2", "c,t,1,2,3", "c,t,1"], 1), (["c,t,1,2"] * 3 + ["c,t,1,x"], 3), (["c"], 0)],
)
def test_the_first_block_that_is_wrong_is_told(tmp_path, monkeypatch, lines, first_row):
    """A short line and a longer one after it are as many values as there should be."""
    monkeypatch.setattr(text_table, "BLOCK_BYTES", 1)
    (tmp_path / "t.csv").write_text("\n".join(["case,type,a,b", *lines, ""]))
    with pytest.raises(text_table.BlockError) as error:
        read(tmp_path / "t.csv", NAMED)
    assert error.value.first_row == first_row


def texts_of_numbers(generator):
    """Endless texts: any float64 and float32, short and long digits, leading and trailing zeros, large exponents."""
    while True:
        sign = generator.choice(["", "", "-", "+"])
        kind = generator.random()
        if kind < 0.2:
            yield sign + repr(struct.unpack("d", struct.pack("Q", generator.getrandbits(62)))[0])
            continue
        if kind < 0.4:
            bits = (
                generator.getrandbits(23) if kind < 0.25 else generator.randrange(0x7F800000)
            )  # the former: subnormal
            yield sign + repr(struct.unpack("f", struct.pack("I", bits))[0])
            continue
        digits = "".join(generator.choices("0123456789", k=generator.randint(0, 22)))
        fraction = "".join(generator.choices("0123456789", k=generator.randint(0 if digits else 1, 22)))
        text = "0" * generator.choice([0, 0, 0, 25]) + digits
        if fraction or generator.random() < 0.3:
            text += "." + fraction
        if generator.random() < 0.5:
            exponent = generator.choice([30, 400, 10**6])
            text += f"{generator.choice('eE')}{generator.choice(['', '-', '+'])}{generator.randint(0, exponent)}"
        yield sign + text


@pytest.mark.parametrize("seed", range(2))
def test_numbers_are_those_of_python(seed):
    """40,000 texts, against float() rounded to float32."""
    texts = [text for text, _ in zip(texts_of_numbers(random.Random(seed)), range(40_000), strict=False)]
    with np.errstate(over="ignore"):
        expected = np.array([float(text) for text in texts]).astype(np.float32)
    found = np.empty((len(texts), 1), dtype=np.float32)
    content = np.frombuffer(("\n".join(texts) + "\n").encode(), dtype=np.uint8)
    form = Form.from_spec({"header": False, "codes": []})
    table = text_table.find_columns(form, [0])
    text_table.make_block_parser(form, table)(content, found, np.empty((0, len(texts)), dtype=np.int32))
    different = np.flatnonzero(found[:, 0].view(np.uint32) != expected.view(np.uint32))
    assert [(texts[row], found[row, 0], expected[row]) for row in different] == []


@pytest.mark.parametrize(("text", "plain"), [("1e2,1.5e7", True), ("1e2,1.5e22", False), ("1e100,2e1", False)])
def test_one_long_exponent_needs_the_exact_parser(text, plain):
    assert text_table.are_plain(np.frombuffer(f"{text}\n".encode(), np.uint8)) is plain

"""A converted file is the CSV file, value by value; one that is not whole and numeric is refused with its place."""

import dataclasses
import gzip
import json
import re
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from study.commands.datasets import copy_data
from study.core.errors import StudyError
from study.core.files import sha256
from study.data import conversion, file_changes, loaders, text_table
from study.data.conversion import convert
from study.data.loaders import LOADERS, load_matrix
from study.data.tabular import Form

SPEC = {"header": False, "codes": [{"column": 0, "values": [0, 1]}]}
FORM = Form.from_spec(SPEC)
GOOD = "0,1.5,2\n1,-3,4e-3\n0,5.25,6\n"


PARSERS = ("compiled", "pandas")


def parse_by(name, monkeypatch):
    """Parse text tables by one of two parsers, which must agree on every number and every refusal."""
    if name == "compiled":
        assert text_table.compiled, "make setup builds it"
    else:
        monkeypatch.setattr(text_table, "compiled", None)


def converted(tmp_path, text, form=FORM, name="data.csv", **expected):
    source = tmp_path / name
    source.write_bytes(text if isinstance(text, bytes) else text.encode())
    convert(source, tmp_path / "m.npy", tmp_path / "m.json", form, **expected)
    return np.load(tmp_path / "m.npy"), json.loads((tmp_path / "m.json").read_text())


@pytest.mark.parametrize("is_older", [True, False])
def test_a_copy_is_compared_whatever_its_time(tmp_path, is_older):
    """A file system that hands out zeros keeps sizes and times."""
    converted(tmp_path, GOOD)
    matrix, sidecar = tmp_path / "m.npy", tmp_path / "m.json"
    (tmp_path / "storage").mkdir()
    copies = {name: tmp_path / "storage" / path.name for name, path in (("path", matrix), ("sidecar", sidecar))}
    copy_data.callback(str(matrix), str(copies["path"]))
    copy_data.callback(str(sidecar), str(copies["sidecar"]))
    data = {"train": {name: str(path) for name, path in copies.items()}}
    file_changes.check_data(data, are_copies=True)
    with open(copies["path"], "r+b") as handle:
        handle.seek(-8, 2)
        handle.write(bytes(8))
    copies["sidecar" if is_older else "path"].touch()
    with pytest.raises(StudyError, match="was changed after its conversion"):
        file_changes.check_data(data, are_copies=True)


def test_a_damaged_original_is_not_copied_to_a_storage(tmp_path):
    converted(tmp_path, GOOD)
    place = tmp_path / "data" / "converted" / "nt3"
    place.mkdir(parents=True)
    for name in ("m.npy", "m.json"):
        (tmp_path / name).rename(place / name)
    original = place / "m.npy"
    original.write_bytes(bytes(original.stat().st_size))
    with pytest.raises(StudyError, match="was changed after its conversion"):
        copy_data.callback(str(original), str(tmp_path / "copy.npy"))
    assert not (tmp_path / "copy.npy").exists()


def test_a_folder_is_copied_whole(tmp_path):
    (tmp_path / "images" / "a").mkdir(parents=True)
    (tmp_path / "images" / "a" / "1.jpg").write_bytes(b"one")
    (tmp_path / "copy.part").mkdir()  # of a copy that was killed
    copy_data.callback(str(tmp_path / "images"), str(tmp_path / "copy"))
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("copy")] == ["copy"]
    assert (tmp_path / "copy" / "a" / "1.jpg").read_bytes() == b"one"


def test_values_and_sidecar(tmp_path):
    matrix, sidecar = converted(tmp_path, GOOD)
    assert matrix.dtype == np.float32
    assert np.array_equal(matrix, np.array([[0, 1.5, 2], [1, -3, 4e-3], [0, 5.25, 6]], dtype=np.float32))
    assert sidecar["shape"] == [3, 3]
    assert sidecar["codes"] == [{"column": 0, "values": [0, 1]}]
    assert sidecar["missing_values"] == 0
    assert sidecar["source"] == {"name": "data.csv", "bytes": len(GOOD), "sha256": sha256(tmp_path / "data.csv")}
    mapped = np.load(tmp_path / "m.npy", mmap_mode="r")
    assert isinstance(mapped, np.memmap)


@pytest.mark.parametrize("text", [GOOD[:-4], GOOD.replace("5.25", "x"), ""], ids=["cut off", "a word", "empty"])
def test_a_file_that_was_damaged_after_it_was_fetched_is_to_be_fetched_again(tmp_path, text):
    """Whatever is wrong with it now; one that was so when it was fetched has a place to look at."""
    checksum = tmp_path / "data.csv.sha256"
    checksum.write_text("0" * 64)
    with pytest.raises(StudyError, match="data.csv: was changed after it was fetched .* delete it to have it fetched"):
        converted(tmp_path, text, checksum=checksum)
    checksum.write_text(sha256(tmp_path / "data.csv"))
    with pytest.raises(StudyError, match="data.csv: (?!was changed)"):
        converted(tmp_path, text, checksum=checksum)
    assert not (tmp_path / "m.npy").exists()


def test_blocks_smaller_than_the_file_give_the_same(tmp_path, monkeypatch):
    whole, _ = converted(tmp_path, GOOD)
    monkeypatch.setattr(text_table, "BLOCK_BYTES", 1)
    pieces, _ = converted(tmp_path, GOOD)
    assert np.array_equal(whole, pieces)


@pytest.mark.parametrize("block", [3, 10**6])
@pytest.mark.parametrize("by", PARSERS)
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["is empty"]),
        ("0\n1\n", ["line 1", "there is one column"]),
        ("0;1;2\n1;3;4\n", ["line 1", "there is one column"]),
        ("\ufeff0,1,2\n1,3,4\n", ["text with a byte order mark of UTF-8; remove it"]),
        ("0,1,2\n1,3\n", ["line 2, column 2", "2 values, but line 1 has 3"]),
        ("0,1,2\n1,3,4,5\n", ["line 2, column 4", "4 values, but line 1 has 3"]),
        ("0,1,2\n1,3,4\n0,five,6\n", ["line 3, column 2", "'five' is not a finite number"]),
        ("0,1,2\n1,,4\n", ["line 2, column 2", "'' is not a finite number"]),
        ("0,1,NA\n", ["line 1, column 3", "'NA'"]),
        ("0,1,2\n1,3,nan\n", ["line 2, column 3", "'nan' is not a finite number"]),
        ("0,1,2\n1,inf,4\n", ["line 2, column 2", "'inf' is not a finite number"]),
        ("0,1,2\n1,-Infinity,4\n", ["line 2, column 2"]),
        ("0,1,2\n1,1e39,4\n", ["line 2, column 2", "does not fit a 32-bit float"]),
        ("0,1,2\n2,3,4\n", ["line 2, column 1", "the label '2' is not one of 0, 1"]),
        ("0,1,2\n-1,3,4\n", ["line 2, column 1", "label"]),
        ("0,1,2\n0.5,3,4\n", ["line 2, column 1", "label"]),
        ("0,1,2\n\n1,3,4\n", ["line 2, column 1", "empty"]),
        ("0,1,2\n1,3,4", ["line 2, column 3", "cut off"]),
        ("0,1,2\n1,3", ["line 2, column 2", "cut off"]),
        ("0,1,2\n1,1_0,4\n", ["line 2, column 2", "'1_0'"]),
        ("0,1,2\n1,0x10,4\n", ["line 2, column 2", "'0x10'"]),
        ("x,1,2\n1,3,4\n", ["line 1, column 1", "the label 'x' is not one of 0, 1"]),
        ("1,1,2\nnan,3,4\n", ["line 2, column 1", "the label 'nan' is not one of 0, 1"]),
        ("1,1,2\n,3,4\n", ["line 2, column 1", "the label ''"]),
        ("label,a,b\n1,3,4\n", ["line 1, column 1", "the label 'label' is not one of 0, 1"]),
        (b"0,1,2\n1,\xff,4\n", ["line 2, column 2"]),
        (b"0,1,2\n1,3\x00,4\n", ["line 2, column 2"]),
    ],
)
def test_faults(tmp_path, monkeypatch, block, by, text, words):
    monkeypatch.setattr(conversion, "VALUES_PER_BLOCK", block)
    monkeypatch.setattr(text_table, "BLOCK_BYTES", block)
    parse_by(by, monkeypatch)
    with pytest.raises(StudyError) as error:
        converted(tmp_path, text)
    assert str(error.value).startswith(str(tmp_path / "data.csv"))
    assert "\n" not in str(error.value)
    for word in words:
        assert word in str(error.value)
    assert [path.name for path in tmp_path.iterdir()] == ["data.csv"], "a refused file leaves nothing behind"


REMOVE = "each line ends with a separator: remove it, such as with `sed 's/{}\\r*$//' FILE > NEW`"


@pytest.mark.parametrize("by", PARSERS)
@pytest.mark.parametrize(
    ("text", "spec", "fault"),
    [
        ("1,2,3,\n0,4,5,\n", {"missing": ["", "na"]}, "line 1, column 4: no line has a value in it"),
        ("1,2,3,\r\n0,4,5,\r\n", {"missing": ["", "na"]}, "line 1, column 4: no line has a value in it"),
        ("1,2,3,\n0,4,5,\n", {}, "line 1, column 4: '' is not a finite number"),
        ("a,b,\n1,2,\n3,4,\n", {"header": True, "missing": [""]}, "line 1, column 3: the column has no name"),
        ("a,b\n1,2,\n3,4,\n", {"header": True, "missing": [""]}, "line 2, column 3: 3 values, but line 1 has 2"),
        ("a\tb\r\n1\t2\t\r\n", {"header": True, "separator": "tab"}, "line 2, column 3: 3 values, but line 1 has 2"),
    ],
)
def test_a_separator_at_the_end_of_each_line_is_no_column(tmp_path, monkeypatch, by, text, spec, fault):
    """pandas adds a column of missing values, or takes the first column for the numbers of the rows."""
    parse_by(by, monkeypatch)
    with pytest.raises(StudyError) as error:
        converted(tmp_path, text, Form.from_spec({"header": False, **spec}))
    mark = "\\t" if "separator" in spec else ","
    assert f"{fault}; " in str(error.value) and str(error.value).endswith(REMOVE.format(mark))
    assert [path.name for path in tmp_path.iterdir()] == ["data.csv"]


@pytest.mark.parametrize("by", PARSERS)
def test_a_last_column_may_lack_values(tmp_path, monkeypatch, by):
    parse_by(by, monkeypatch)
    spec = {"header": False, "missing": ["", "na"]}
    matrix, _ = converted(tmp_path, "1,2,\n0,4,5\n", Form.from_spec(spec))
    assert np.array_equal(matrix, [[1, 2, np.nan], [0, 4, 5]], equal_nan=True)
    matrix, _ = converted(tmp_path, "1,2,\n0,4,\n", Form.from_spec({**spec, "drop": [2]}))
    assert matrix.tolist() == [[1, 2], [0, 4]]
    matrix, _ = converted(tmp_path, "a,b,c\n1,2,\n0,4,\n", Form.from_spec({**spec, "header": True}))
    assert np.array_equal(matrix, [[1, 2, np.nan], [0, 4, np.nan]], equal_nan=True), "it has a name"
    with pytest.raises(StudyError, match="line 2, column 2: 'x' is not a finite number$"):
        converted(tmp_path, "1,2,\n0,x,5\n", Form.from_spec(spec))


NAMED_SPEC = {"header": True, "codes": [{"column": "type"}], "drop": ["case"]}
NAMED = Form.from_spec(NAMED_SPEC)
NAMED_TEXT = "case,type,a,b\nc1,lung,1,2.5\nc2,breast,3,4\nc3,lung,-5,6e2\n"


def test_names_categories_and_left_out_columns(tmp_path):
    matrix, sidecar = converted(tmp_path, NAMED_TEXT, NAMED)
    assert sidecar["codes"] == [{"column": "type", "values": ["breast", "lung"]}]
    assert np.array_equal(matrix, np.array([[1, 1, 2.5], [0, 3, 4], [1, -5, 600]], dtype=np.float32))
    assert sidecar["shape"] == [3, 3]


@pytest.mark.parametrize("loader", LOADERS)
@pytest.mark.parametrize(
    ("choice", "columns"), [({"drop": [1]}, [0, 2, 3]), ({"keep": [3, 2]}, [0, 3, 2])], ids=["drop", "keep"]
)
def test_columns_of_a_table_without_a_header_are_left_out_by_their_numbers(tmp_path, loader, choice, columns):
    spec = {**SPEC, **choice}
    matrix, _ = converted(tmp_path, "0,1.5,2,3\n1,-3,4e-3,4\n", Form.from_spec(spec))
    whole = np.array([[0, 1.5, 2, 3], [1, -3, 4e-3, 4]], dtype=np.float32)
    assert np.array_equal(matrix, whole[:, columns])
    path = tmp_path / ("m.npy" if LOADERS[loader].reads != "raw" else "data.csv")
    assert load_matrix(loader, path, tmp_path / "m.json", spec).tobytes() == matrix.tobytes()


def test_kept_columns_missing_values_and_tabs(tmp_path):
    form = Form.from_spec(
        {"header": True, "separator": "tab", "codes": [{"column": "id"}], "keep": ["b"], "missing": ["na", ""]}
    )
    matrix, sidecar = converted(tmp_path, "id\tunit\ta\tb\n7\tm\tx\tna\n8\t\ty\t2\n9\t-\tz\t\n", form)
    assert sidecar["missing_values"] == 2
    assert sidecar["codes"] == [{"column": "id", "values": ["7", "8", "9"]}]
    assert np.array_equal(matrix, np.array([[0, np.nan], [1, 2], [2, np.nan]], dtype=np.float32), equal_nan=True)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("case,type,a,b\n", "has no line after its header"),
        (
            "case,sort,a,b\nc1,lung,1,2\n",
            "line 1: there is no column 'type': there are 4 columns, the first are 'case'",
        ),
        ("case,type,a,b\nc1,lung,1,2\nc2,lung,x,2\n", "line 3, column 3: 'x' is not a finite number"),
        ("case,type,a,b\nc1,,1,2\n", "line 2, column 2: the category is ''"),
        ("case,type,a,a\nc1,lung,1,2\n", "line 1, column 4: the column is named 'a' as an earlier one is"),
        (",case,type,a\n0,c1,lung,1\n", "line 1, column 1: the column has no name"),
        ('case,"type",a,b\nc1,lung,1,2\n', "line 1, column 2: .* has a quote"),
        ('case,type,a,b\nc1,lung,"1",2\nc2,"lung,x,2\n', "line 2, column 3: .* has a quote"),
        ("case,type,a,b\nc1,lung,1\n", "line 2, column 3: 3 values, but line 1 has 4"),
        ("case,type,a,b\nc1,lung,na,2\n", "line 2, column 3: 'na' is not a finite number"),
    ],
)
def test_faults_in_named_files(tmp_path, text, words):
    with pytest.raises(StudyError, match=words):
        converted(tmp_path, text, NAMED)


@pytest.mark.parametrize("loader", LOADERS)
def test_loaders_read_named_files_alike(tmp_path, loader):
    matrix, _ = converted(tmp_path, NAMED_TEXT, NAMED)
    path = tmp_path / ("m.npy" if LOADERS[loader].reads != "raw" else "data.csv")
    assert load_matrix(loader, path, tmp_path / "m.json", NAMED_SPEC).tobytes() == matrix.tobytes()


def test_a_file_that_changed_after_its_conversion_is_refused(tmp_path):
    converted(tmp_path, NAMED_TEXT, NAMED)
    (tmp_path / "data.csv").write_text(NAMED_TEXT.replace("breast", "kidney"))  # as long
    with pytest.raises(StudyError, match="column type: 'kidney' is not one of its 2 known values; was it changed"):
        load_matrix("read_csv", tmp_path / "data.csv", tmp_path / "m.json", NAMED_SPEC)
    (tmp_path / "data.csv").write_text(NAMED_TEXT + "c4,lung,1,2\n")
    with pytest.raises(StudyError, match="bytes were converted|were converted; was it changed"):
        load_matrix("read_csv", tmp_path / "data.csv", tmp_path / "m.json", NAMED_SPEC)


def between(number):
    """The exact decimal text of a midpoint between two float32, or one digit beside it."""
    lower = np.float32(number)
    upper = np.nextafter(lower, np.float32(np.inf))
    middle = (float(lower) + float(upper)) / 2
    return format(Decimal(middle), "f")


DIGITS = st.text("0123456789", max_size=30)
MANTISSAS = st.builds("{}{}{}".format, DIGITS, st.sampled_from(["", "."]), DIGITS).filter(
    lambda text: text not in ("", ".")
)
EXPONENTS = st.just("") | st.builds("{}{}{}".format, st.sampled_from("eE"), st.sampled_from(["", "+", "-"]),
                                    st.integers(0, 60).map(str) | st.sampled_from(["007", "400"]))  # fmt: skip
NUMBERS = st.one_of(
    st.builds("{}{}{}".format, st.sampled_from(["", "+", "-"]), MANTISSAS, EXPONENTS),
    st.floats(width=32, allow_nan=False, allow_infinity=False, min_value=-(2.0**120), max_value=2.0**120).map(between),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.integers(-(2**70), 2**70).map(str),
    st.sampled_from(["-0", "0", "-0.0", "-0e5", "1e-45", "7e-46", "1.401298464324817e-45", "3.4028235e38", "1e-400",
                     "9007199254740993", "18446744073709551616", "16777217", "340282346638528859811704183484516925439",
                     "0" * 400 + "1", "1" + "0" * 38, "0." + "0" * 400 + "1e400", "1." + "0" * 800 + "1"]),
)  # fmt: skip


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_all_loaders_give_the_same_bits(tmp_path_factory, data):
    """Any text of a number comes out of every loader as the nearest float64, rounded to float32, or is refused."""
    folder = tmp_path_factory.mktemp("bits")
    blank = st.sampled_from(["", "", "", " ", "\t", "  "])
    number = st.builds("{}{}{}".format, blank, NUMBERS, blank)
    columns = data.draw(st.integers(1, 5))
    rows = data.draw(st.lists(st.lists(number, min_size=columns, max_size=columns), min_size=1, max_size=6))
    values = np.array([[float(text) for text in row] for row in rows])
    with np.errstate(over="ignore"):
        right = values.astype(np.float32)
    content = "".join(",".join([str(index % 2), *row]) + "\n" for index, row in enumerate(rows)).encode()
    content = gzip.compress(content) if data.draw(st.booleans()) else content
    if np.isinf(right).any():
        with pytest.raises(StudyError, match="does not fit a 32-bit float|is not a finite number"):
            converted(folder, content)
        return
    matrix, _ = converted(folder, content)
    assert matrix[:, 1:].tobytes() == right.tobytes()
    for name in LOADERS:
        loaded = load_matrix(
            name, folder / ("m.npy" if LOADERS[name].reads != "raw" else "data.csv"), folder / "m.json", SPEC
        )
        assert loaded.dtype == np.float32
        assert loaded.tobytes() == matrix.tobytes(), name


PLAIN_NUMBER = re.compile(r"[ \t]*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?[ \t]*", re.ASCII)
OTHER_TEXTS = ["", " ", "nan", "NaN", "-nan", "inf", "-Infinity", "x", "na", "NA", "N/A", "None", "null", "1_0",
               "0x1p3", "0x10", "1e400", "1e-400", "1e", "e5", "1.2.3", "1,000", '"1"', "'1'", "\u00e9", "\u0661",
               "1;2", "True", "1d5", "1.5f", "#1", "1%", "$1", "- 1", "+-2", "--2", "1\u00a0", "\u22121", "1/2", "1+2j",
               "5 6"]  # fmt: skip
WORDS_OF_MISSING = ["na", "", "NaN", "-999", "-999.0", "0", "1e5", "-", "x y", "+1", "1_0", "inf", "1e400", "True"]
OF_MISSING = ["-999", "-999.0", "-9.99e2", "-999.00", " -999", "0", "-0", "0.0", "1e5", "100000", "+100000.0", "10"]


def value_of(text, words):
    """The float32 that a text means, NaN if it is missing; None if the table is to be refused."""
    if text in words:
        return np.float32(np.nan)
    if not PLAIN_NUMBER.fullmatch(text) or not np.isfinite(np.float32(float(text))):
        return None
    stands = [np.float32(float(word)) for word in words if PLAIN_NUMBER.fullmatch(word) or word == "1_0"]
    return np.float32(np.nan) if np.float32(float(text)) in stands else np.float32(float(text))


@pytest.mark.slow
@settings(max_examples=120, deadline=None)
@given(data=st.data())
def test_any_text_has_one_value_in_all_loaders_or_is_refused(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("texts")
    words = data.draw(st.lists(st.sampled_from(WORDS_OF_MISSING), max_size=3, unique=True))
    good = NUMBERS.filter(lambda text: abs(float(text)) < 1e38) | st.sampled_from([*OF_MISSING, *words])
    cell = st.one_of(good, good, good, good, good, st.sampled_from(OTHER_TEXTS))
    rows = data.draw(st.lists(st.lists(cell, min_size=3, max_size=3), min_size=1, max_size=4))
    spec = {"header": True, "codes": [], "missing": words}
    text = "".join(",".join(row) + "\n" for row in [["a", "b", "c"], *rows])
    with np.errstate(over="ignore"):
        right = [[value_of(cell, words) for cell in row] for row in rows]
    if any(value is None for row in right for value in row):
        with pytest.raises(StudyError, match="data.csv"):
            converted(folder, text, Form.from_spec(spec))
        return
    matrix, _ = converted(folder, text, Form.from_spec(spec))
    assert np.array_equal(matrix, np.array(right, np.float32), equal_nan=True)
    assert np.array_equal(np.signbit(matrix[matrix == 0]), np.signbit(np.array(right, np.float32)[matrix == 0]))
    for name in LOADERS:
        path = folder / ("m.npy" if LOADERS[name].reads != "raw" else "data.csv")
        assert load_matrix(name, path, folder / "m.json", spec).tobytes() == matrix.tobytes(), name


@pytest.mark.parametrize("by", PARSERS)
def test_a_number_that_means_a_missing_value_means_it_in_every_spelling(tmp_path, monkeypatch, by):
    parse_by(by, monkeypatch)
    form = Form.from_spec({"header": True, "codes": [{"column": "t"}], "missing": ["-999", "na"]})
    matrix, sidecar = converted(tmp_path, "t,a\nx,-999\ny,-999.0\nx,-9.99e2\nx,na\nx,999\n", form)
    assert np.array_equal(matrix[:, 1], np.array([np.nan] * 4 + [999], np.float32), equal_nan=True)
    assert sidecar["missing_values"] == 4
    with pytest.raises(StudyError, match="line 2, column 1: the category is '-999.0'"):
        converted(tmp_path, "t,a\n-999.0,1\n", form)


SHORT = st.builds("{}{}{}".format, st.sampled_from(["", "+", "-"]),
                  st.builds("{}{}{}".format, st.text("0123456789", min_size=1, max_size=8), st.sampled_from(["", "."]),
                            st.text("0123456789", max_size=6)),
                  st.sampled_from(["", "", "e0", "e-07", "E+7", "e5", "e-3"]))  # fmt: skip
BLANK_AROUND = st.builds("{}{}{}".format, st.sampled_from(["", " "]), SHORT, st.sampled_from(["", "\t"]))


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(rows=st.lists(st.lists(BLANK_AROUND, min_size=3, max_size=3), min_size=1, max_size=8))
def test_plain_numbers_are_read_exactly_by_candle_s_own_call(tmp_path_factory, rows):
    """With up to 15 digits and exponents up to 7, and without -0, pandas' defaults are exact."""
    folder = tmp_path_factory.mktemp("plain")
    text = "".join(",".join([str(index % 2), *row]) + "\n" for index, row in enumerate(rows))
    matrix, sidecar = converted(folder, text)
    right = np.array([[float(cell) for cell in row] for row in rows])
    assert matrix[:, 1:].tobytes() == right.astype(np.float32).tobytes()
    has_zero_with_sign = any(re.match(r"-0(?!\.)", cell.strip()) for row in rows for cell in row)
    assert sidecar["has_plain_numbers"] == (not has_zero_with_sign)
    if sidecar["has_plain_numbers"]:
        assert dataclasses.replace(FORM, has_plain_numbers=True).build_reading_options() == {"header": None}
        assert pd.read_csv(folder / "data.csv", header=None)[[1, 2, 3]].to_numpy(float).tobytes() == right.tobytes()
    for name in ("read_csv", "chunked", "dask", "dask_dataframe"):
        assert load_matrix(name, folder / "data.csv", folder / "m.json", SPEC).tobytes() == matrix.tobytes(), name


@pytest.mark.parametrize(
    "cell", ["1234567890123456", "1e8", "1e-08", "1e-100", "0.00000000000001", "1E+12", "5.e10", "-0", "-00"]
)
@pytest.mark.parametrize("place", ["{},1.5\n", "1.5,{}\n"])
def test_numbers_that_are_not_plain(tmp_path, cell, place):
    _, sidecar = converted(tmp_path, "0," + place.format(cell))
    assert not sidecar["has_plain_numbers"]


def test_texts_that_look_like_long_numbers_only_cost_time(tmp_path):
    spec = {"header": True, "codes": [{"column": "t"}]}
    assert converted(tmp_path, "t,e9\nBRCA1e,1.5\nLate,2e5\n", Form.from_spec(spec))[1]["has_plain_numbers"]
    assert not converted(tmp_path, "t,a\nTCGA-0e12,1.5\n", Form.from_spec(spec))[1]["has_plain_numbers"]


# A file that begins with a bracket is refused as JSON.
TEXTS = st.text(st.characters(min_codepoint=32, max_codepoint=126, exclude_characters='",[{'), min_size=1, max_size=6)
WORDS = ["NA", "null", "None", "nan", "NaN", "inf", "True", "1.0", "01", "1e5", "#x", "a b", " a", "a ", "N/A", "-"]


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(names=st.lists(TEXTS | st.sampled_from(WORDS), min_size=1, max_size=6), header=st.booleans())
def test_all_loaders_give_the_same_categories(tmp_path_factory, names, header):
    """A name is a text, whatever a library takes it for."""
    folder = tmp_path_factory.mktemp("names")
    spec = {"header": header, "codes": [{"column": "type" if header else 0}]}
    text = ("type,a\n" if header else "") + "".join(f"{name},{index}\n" for index, name in enumerate(names))
    matrix, sidecar = converted(folder, text, Form.from_spec(spec))
    assert [sidecar["codes"][0]["values"][int(code)] for code in matrix[:, 0]] == names
    for name in LOADERS:
        path = folder / ("m.npy" if LOADERS[name].reads != "raw" else "data.csv")
        assert load_matrix(name, path, folder / "m.json", spec).tobytes() == matrix.tobytes(), name


CELLS = ["0", "1", "2.5", "-1e3"]
STRANGE = ["", " 1", "1 ", "+2", "+-2", "++2", "1E-3", ".5", "5.", "nan", "NaN", "-nan", "inf", "x", "na", "NA", "N/A",
           "None", "1_0", "0x10", "1e400", "1e-400", "1e", "1.2.3", "1,", "\r", '"1"', "\0", "\u00e9", "1;2", "True",
           "false", "1d5", "#1", "1%", "- 1"]  # fmt: skip
SPECS = [
    SPEC,
    NAMED_SPEC,
    {"header": True, "codes": [], "missing": ["na", ""]},
    {"header": False, "codes": []},
    {"header": True, "codes": [{"column": "type"}], "keep": ["b", "case"], "missing": ["na", ""]},
]


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_all_parsers_take_and_refuse_the_same(tmp_path_factory, data):
    """The same matrix from all parsers, or an error from all."""
    spec = data.draw(st.sampled_from(SPECS))
    names = ["case", "type", "a", "b"][: 0 if not spec["header"] else 4]
    cell = st.sampled_from(CELLS * 12 + STRANGE)
    rows = data.draw(
        st.lists(st.lists(cell, min_size=3, max_size=5) | st.lists(cell, min_size=4, max_size=4), max_size=5)
    )
    end = data.draw(st.sampled_from(["\n", "\r\n"]))
    text = "".join(",".join(row) + end for row in ([names] if names else []) + rows)
    found = []
    for by in PARSERS:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(text_table, "BLOCK_BYTES", 8)
            parse_by(by, patch)
            try:
                matrix, sidecar = converted(tmp_path_factory.mktemp("either"), text, Form.from_spec(spec))
                found.append((matrix.tobytes(), sidecar))
            except StudyError:
                found.append("refused")
    assert found[0] == found[1], repr(text)


@pytest.mark.slow
def test_memory_stays_flat(tmp_path):
    """A file several times the size of a block is converted in blocks."""
    import subprocess
    import sys

    program = f"""
import sys
from study.data.conversion import convert
from study.data.tabular import Form
from study.instruments.counters import read_peak_memory_mb
before = read_peak_memory_mb()
form = Form.from_spec({SPEC!r})
convert({str(tmp_path / "big.csv")!r}, {str(tmp_path / "m.npy")!r}, {str(tmp_path / "m.json")!r}, form)
print(read_peak_memory_mb() - before)
"""
    row = ",".join(["1", *["1.25"] * 9_999]) + "\n"
    (tmp_path / "big.csv").write_text(row * 3000)  # 150 MB as text, 240 MB as float64
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    matrix_mb = 3000 * 10_000 * 4 / 1e6  # mapped, so it counts once touched
    assert float(done.stdout) < matrix_mb + 200


def test_train_and_test_files_have_the_same_columns(tmp_path):
    """Genes in another order would be scaled and tested against the wrong ones."""
    forms = {"train": {**NAMED_SPEC, "split": "train"}, "test": {**NAMED_SPEC, "split": "test"}}
    files = {}
    for file, text in (("train", NAMED_TEXT), ("test", NAMED_TEXT)):
        (tmp_path / file).mkdir()
        converted(tmp_path / file, text, NAMED)
        files[file] = {"path": f"{file}.csv", "sidecar": tmp_path / file / "m.json"}
    loaders.check_columns(files, forms)
    converted(tmp_path / "test", NAMED_TEXT.replace("type,a,b", "type,b,a"), NAMED)
    with pytest.raises(StudyError, match="train.csv and test.csv do not have the same columns .other names or order"):
        loaders.check_columns(files, forms)
    converted(tmp_path / "test", "case,type,a\nc1,lung,1\n", NAMED)
    with pytest.raises(StudyError, match="2 and 1 numeric columns"):
        loaders.check_columns(files, forms)

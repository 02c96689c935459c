"""Tables and files of other programs: read exactly, or refused as what they are."""

import bz2
import gzip
import io
import json
import lzma
import pickle
import sqlite3
import zipfile
import zlib

import numpy as np
import pytest

from study import workloads
from study.backends.tensorflow import image_codec
from study.core import configuration, file_kinds
from study.core.errors import StudyError
from study.data import formats
from study.data.conversion import convert
from study.data.loaders import LOADERS, TRAINING_LOADERS, check_columns, load
from study.data.tabular import Form
from study.instruments.timeline.events import Events
from study.workloads.base import Table

NT3 = {"header": False, "codes": [{"column": 0, "values": [0, 1]}]}
P1B2 = {"header": True, "codes": [{"column": "cancer_type"}], "drop": ["case_id"]}
LINES = "".join(f"{row % 2}," + ",".join(f"{row * k / 7:.3f}" for k in range(9)) + "\n" for row in range(40)).encode()


def converted(folder, content, spec=NT3, name="data.csv"):
    path = folder / name
    path.write_bytes(content)
    convert(path, folder / "m.npy", folder / "m.json", Form.of(spec))
    return np.load(folder / "m.npy")


def differing(folder, matrix, spec=NT3, name="data.csv"):
    """The loaders that give other bits than the conversion."""
    paths = {loader: folder / (name if LOADERS[loader].reads == "raw" else "m.npy") for loader in TRAINING_LOADERS}
    return [
        loader
        for loader, path in paths.items()
        if load(loader, path, folder / "m.json", spec).tobytes() != matrix.tobytes()
    ]


def refusal(folder, content, spec=NT3, name="data.csv"):
    with pytest.raises(StudyError) as error:
        converted(folder, content, spec, name)
    assert "\n" not in str(error.value)
    assert not (folder / "m.npy").exists()
    return str(error.value).replace(f"{folder}/", "")


@pytest.mark.case("csv-float32-midpoints", source="pandas-dev/pandas #17154", right="0 values differ")
def test_midpoints_of_float32(tmp_path, ours):
    drawn = np.random.default_rng(7)
    a = np.log2(1 + drawn.gamma(2, 30, (40, 60))).astype(np.float32)
    b = (a + drawn.normal(0, 0.05, a.shape)).astype(np.float32)
    rows = ((a.astype(np.float64) + b) / 2).tolist()
    text = "".join(",".join([str(r % 2), *map(repr, row)]) + "\n" for r, row in enumerate(rows))
    matrix = converted(tmp_path, text.encode())
    assert matrix[:, 1:].tobytes() == np.array(rows).astype(np.float32).tobytes()
    found = differing(tmp_path, matrix)
    ours(f"{len(found)} loaders differ")
    assert found == []


@pytest.mark.case("csv-negative-zero", source="our own", right="-0 in all loaders")
def test_a_column_of_integers_keeps_the_sign_of_zero_and_what_exceeds_64_bits(tmp_path, ours):
    matrix = converted(tmp_path, b"0,-0,18446744073709551617\n1,0,-123456789012345678901234567890\n")
    assert np.signbit(matrix[0, 1])
    assert differing(tmp_path, matrix) == []
    ours("-0 in all loaders")


@pytest.mark.parametrize(
    ("header", "column"),
    [
        ("case_id,cancer_type,dose_\u00b5g,age,size\n".encode("latin-1"), "line 1, column 3: the name 'dose_\\xb5g'"),
        ("case_id,cancer_type,TNF-\u03b1,IL6,IL8\n".encode(), "line 1, column 3: the name 'TNF-\u03b1'"),
        ("case_id,cancer_type,IL6,IL-1\u03b1,IL-1\u03b2\n".encode(), "line 1, column 4: the name 'IL-1\u03b1'"),
    ],
    ids=["latin1", "utf8", "two"],
)
@pytest.mark.case("csv-header-not-ascii", source="Knowledge-Graph-Hub/kg-microbe PR #649", right="refused, not ASCII")
def test_names_that_are_not_ascii(tmp_path, ours, header, column):
    message = refusal(tmp_path, header + b"c1,BRCA,1,2,3\n", P1B2)
    ours(message)
    assert column in message
    assert "is not ASCII" in message


@pytest.mark.case("csv-header-names-alike", source="our own", right="three columns, other than those of test")
def test_names_that_differ_in_case_or_blanks_stay_different(tmp_path, ours):
    files = {}
    for split, names in (("train", "a,A, a"), ("test", "a, a,A")):
        folder = tmp_path / split
        folder.mkdir()
        converted(folder, f"case_id,cancer_type,{names}\nc1,BRCA,1,2,3\n".encode(), P1B2)
        files[split] = {"path": str(folder / "data.csv"), "sidecar": str(folder / "m.json")}
    with pytest.raises(StudyError, match="other names or order"):
        check_columns(files, {split: {**P1B2, "split": split} for split in files})
    ours("other names or order")


@pytest.mark.parametrize("name", ["data.csv.gz", "data.csv"])
@pytest.mark.parametrize("parts", [1, 3], ids=["one part", "three parts"])
@pytest.mark.case("csv-gzip", source="cytomining/pycytominer #95", right="read by every loader")
def test_tables_compressed_with_gzip(tmp_path, ours, name, parts):
    size = -(-len(LINES) // parts)
    content = b"".join(gzip.compress(LINES[begin : begin + size]) for begin in range(0, len(LINES), size))
    matrix = converted(tmp_path, content, name=name)
    assert json.loads((tmp_path / "m.json").read_text())["source"]["bytes"] == len(content)
    other = tmp_path / "plain"
    other.mkdir()
    assert matrix.tobytes() == converted(other, LINES).tobytes()
    assert differing(tmp_path, matrix, name=name) == []
    ours("read by every loader")


@pytest.mark.parametrize("lost", [4, 9, 100])
@pytest.mark.case("csv-gzip-cut-off", source="our own", right="refused as cut off")
def test_a_compressed_table_that_is_cut_off(tmp_path, ours, lost):
    message = refusal(tmp_path, gzip.compress(LINES)[:-lost])
    ours(message)
    assert "compressed with gzip, and is cut off or damaged" in message


@pytest.mark.parametrize("name", ["data.csv.gz", "data.bz2", "data.xz", "d[1].csv", "d*.csv", "a::b.csv", "d e.csv"])
@pytest.mark.case("paths-of-own-data", source="snakemake #2981; datasets #5757", right="read by every loader")
def test_names_of_files_have_no_meaning(tmp_path, ours, name):
    """Endings that libraries decompress by, and characters that are patterns or URLs to them."""
    assert differing(tmp_path, converted(tmp_path, LINES, name=name), name=name) == []
    ours("read by every loader")


def _zip(member, content=LINES):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(member, content)
    return file.getvalue()


def _npy():
    file = io.BytesIO()
    np.save(file, np.ones((2, 2)))
    return file.getvalue()


TEXT = LINES.decode()
OTHERS = {
    "zip": (_zip("data.csv"), "a zip archive", "unzip"),
    "xlsx": (_zip("xl/workbook.xml"), "an Excel file (.xlsx)", "export"),
    "npz": (_zip("matrix.npy", _npy()), "a NumPy archive (.npz)", "savetxt"),
    "npy": (_npy(), "a NumPy array (.npy)", "savetxt"),
    "bzip2": (bz2.compress(LINES), "compressed with bzip2", "bunzip2"),
    "xz": (lzma.compress(LINES), "compressed with xz", "unxz"),
    "lzma": (lzma.compress(LINES, lzma.FORMAT_ALONE), "compressed with LZMA", "unlzma"),
    "zlib": (zlib.compress(LINES), "compressed with zlib", "zlib"),
    "zstd": (b"\x28\xb5\x2f\xfd\x04\x00\x01\xff", "compressed with Zstandard", "unzstd"),
    "gzip twice": (gzip.compress(gzip.compress(LINES)), "compressed with gzip, and in it", "gunzip"),
    "tar.gz": (gzip.compress(b"data.csv".ljust(257, b"\0") + b"ustar\0" + LINES), "in it a tar archive", "tar -xf"),
    "utf-16": (TEXT.encode("utf-16"), "text in UTF-16", "iconv -f UTF-16 "),
    "utf-16-le": (TEXT.encode("utf-16-le"), "text in UTF-16 without a byte order mark", "UTF-16LE"),
    "utf-16-be": (TEXT.encode("utf-16-be"), "text in UTF-16 without a byte order mark", "UTF-16BE"),
    "utf-32": (TEXT.encode("utf-32"), "text in UTF-32", "iconv -f UTF-32 "),
    "utf-8-sig": (TEXT.encode("utf-8-sig"), "a byte order mark of UTF-8", "sed"),
    "pickle": (pickle.dumps({"x": [1.0]}), "a Python pickle", "Python"),
    "pickle 0": (pickle.dumps({"x": [1.0]}, 0), "a Python pickle", "Python"),
    "parquet": (b"PAR1\x15\x04\x15\xff", "a Parquet file", "read_parquet"),
    "hdf5": (b"\x89HDF\r\n\x1a\n\0\0", "an HDF5 file", "export"),
    "xls": (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1\0", "an Excel (.xls)", "export"),
    "rds": (gzip.compress(b"X\n\0\0\0\x03\0\x04\x03\0"), "an R data file", "write.csv"),
    "pdf": (b"%PDF-1.7\n%\xe2\xe3", "a PDF document", "export"),
    "lfs": (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n", "a Git LFS pointer", "lfs pull"),
    "page": (b"\n<!DOCTYPE html>\n<html><body>Log in</body></html>\n", "a web page", "fetch"),
    "page gz": (gzip.compress(b"<html><body>Log in</body></html>\n"), "in it a web page", "fetch"),
    "json": (b'{"message": "Not Found"}\n', "a JSON error message", "fetch"),
    "s3": (b'<?xml version="1.0"?>\n<Error><Code>NoSuchKey</Code></Error>\n', "an XML error message", "fetch"),
    "404": (b"404: Not Found", "an error message of a server", "fetch"),
    "png": (b"\x89PNG\r\n\x1a\n\0\0", "a PNG image", "give the right file"),
    "zeros": (b"\0" * 500, "zero bytes", "fetch"),
}  # fmt: skip


@pytest.mark.parametrize("kind", OTHERS)
@pytest.mark.case("csv-of-another-kind", source="jamovi/jamovi #257; datasets #10", right="refused as what it is")
def test_files_that_are_no_text_table(tmp_path, ours, kind):
    content, name, remedy = OTHERS[kind]
    message = refusal(tmp_path, content)
    ours(message)
    assert f"is no text table: it is {name}" in message or name in message
    assert remedy in message
    assert "cut off" not in message


@pytest.mark.case("database-as-csv", source="our own", right="refused as an SQLite data base")
def test_a_data_base_and_an_unknown_file(tmp_path, ours):
    with sqlite3.connect(tmp_path / "d.sqlite") as base:
        base.execute("create table t (x real)")
    message = refusal(tmp_path, (tmp_path / "d.sqlite").read_bytes())
    assert "an SQLite data base" in message
    assert r"it begins with b'\x01\x02\x03" in refusal(tmp_path, b"\x01\x02\x03\x04garbage\n")
    ours(message)


@pytest.mark.parametrize("name", ["PAR1", "BM", "ID3", "ORC", "x^2", "MM", "404", "A", "P2", "GIF8"])
def test_names_of_columns_that_begin_as_other_kinds(tmp_path, name):
    matrix = converted(tmp_path, f"{name},b\n1,2\n3,4\n".encode(), {"header": True})
    assert matrix.tolist() == [[1, 2], [3, 4]]


@pytest.mark.case("csv-semicolons", source="HKUDS/Vibe-Trading PR #865", right="refused, with the separator")
def test_semicolons_and_decimal_commas(tmp_path, ours):
    message = refusal(tmp_path, LINES.replace(b",", b";").replace(b".", b","))
    ours(message)
    assert "line 1 has 9 semicolons: separate the values by commas, and decimal points instead of" in message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"0,1,2\n1,3\n", "line 2, column 2: 2 values, but line 1 has 3"),
        (b"0,1,2\n1,3,NA\n", "line 2, column 3: 'NA' is not a finite number"),
        (b"0,1,2\n1,3,#N/A\n", "line 2, column 3"),
        (b'0,1,2\n1,"3",4\n', "line 2, column 2: '\"3\"' has a quote"),
        (b"0,1,2\n1,3,1_000\n", "line 2, column 3"),
        (b"0,1,2\n\n1,3,4\n", "line 2, column 1: the line is empty"),
    ],
)
@pytest.mark.case("csv-shapes-of-other-tools", source="pandas #14124; readr #358", right="refused with line and column")
def test_shapes_of_other_tools(tmp_path, ours, text, words):
    message = refusal(tmp_path, text)
    ours(message)
    assert words in message


@pytest.mark.case("timeline-of-old-horovod", source="horovod/horovod #1472", right="all events, without an end")
def test_a_timeline_without_its_end(tmp_path, ours):
    events = [{"name": "ALLREDUCE", "ph": "B", "ts": n, "pid": 1} for n in range(3)]
    path = tmp_path / "timeline.json"
    path.write_text("[\n" + "".join(json.dumps(event) + ",\n" for event in events))
    found = list(Events(path))
    ours(f"{len(found)} events")
    assert found == events


def test_formats_name_a_file_of_another_kind(tmp_path):
    path = tmp_path / "matrix"
    path.write_bytes(gzip.compress(b"x"))
    for name in ("npy", "hdf5", "parquet", "lmdb"):
        with pytest.raises(StudyError, match="it is compressed with gzip"):
            formats.read(name, path)


# P1B3


@pytest.fixture(scope="module")
def p1b3():
    spec = configuration.load_named("benchmarks", "p1b3")
    spec["model"]["feature_subsample"] = 20
    benchmark = workloads.get("p1b3", spec)
    shape = {"train_samples": 600, "test_samples": 60, "features": 30}
    return benchmark, {f: b"".join(benchmark.synthetic_blocks(f, shape, 1)).decode() for f in spec["files"]}


def arranged(p1b3, folder, **changes):
    """The data of P1B3's five files. changes: {file: a function from its text to another}."""
    benchmark, texts = p1b3
    tables = {}
    for file, form in benchmark.spec["files"].items():
        (folder / file).mkdir()
        text = changes.get(file, lambda text: text)(texts[file])
        matrix = converted(folder / file, text.encode(), form)
        sidecar = json.loads((folder / file / "m.json").read_text())
        tables[file] = Table(matrix, [code["values"] for code in sidecar["codes"]])
    return benchmark.preprocess(tables, 1)


def first_cells(change, every=1):
    """A function that changes the first cell of each ``every``-th line after the header."""

    def changed(text):
        lines = text.splitlines()
        for index in range(1, len(lines), every):
            first, *rest = lines[index].split(",")
            lines[index] = ",".join([change(first), *rest])
        return "\n".join(lines) + "\n"

    return changed


SPELLINGS = {
    "1007.0": ("response", first_cells(lambda name: f"{name}.0")),
    "half of them": ("response", first_cells(lambda name: f"{name}.0", every=2)),
    "leading zeros": ("response", first_cells(lambda name: name.zfill(8), every=5)),
    "a prefix": ("response", first_cells(lambda name: f"NSC-{name}", every=5)),
    "an exponent": ("response", first_cells(lambda name: f"{float(name):.3e}", every=3)),
    "punctuation": ("expression", lambda text: text.replace("NCI.CELL-40", "NCI.CELL_40")),
    "case": ("expression", lambda text: text.replace("NCI.CELL-40", "NCI.cell-40")),
    "test drugs": ("test_drugs", first_cells(lambda name: f"{name}.0", every=2)),
    "test cell lines": ("test_cell_lines", first_cells(str.lower, every=2)),
}  # fmt: skip


@pytest.mark.parametrize("how", SPELLINGS)
@pytest.mark.case("p1b3-keys-of-other-tables", source="pandas #8596; JonJala/mtag #38", right="refused with the names")
def test_keys_that_another_file_spells_otherwise(p1b3, tmp_path, ours, how):
    file, change = SPELLINGS[how]
    with pytest.raises(StudyError, match=r"names match no row of .*, which spells them otherwise \(") as error:
        arranged(p1b3, tmp_path, **{file: change})
    ours(str(error.value))
    assert "(unmatched_at_most.spelled_otherwise in config/benchmarks/p1b3.yaml)" in str(error.value)


@pytest.mark.case("p1b3-keys-unknown", source="our own", right="counted, or refused above the share")
def test_keys_without_a_row_are_counted_and_refused_above_a_share(p1b3, tmp_path, ours):
    for name in "abc":
        (tmp_path / name).mkdir()
    few = arranged(p1b3, tmp_path / "a", response=first_cells(lambda _: "999999", every=10))
    assert few.unmatched["responses_without_expression"] == 0
    assert few.unmatched["responses_without_descriptors"] > 0
    with pytest.raises(StudyError, match=r"rows \(\d+\.\d%\) match no row of .*such as '999999'; at most 50.0% may"):
        arranged(p1b3, tmp_path / "b", response=first_cells(lambda _: "999999"))
    with pytest.raises(StudyError, match=r"test_drugs.txt: 1 of \d+ rows .* such as '999999'; at most 0.0% may"):
        arranged(p1b3, tmp_path / "c", test_drugs=lambda text: text + "999999\n")
    ours(f"{few.unmatched['responses_without_descriptors']} responses counted")


@pytest.mark.parametrize("strange", ["luad", "LUAD ", "KIRC"])
@pytest.mark.case("p1b2-classes-of-test", source="our own", right="refused")
def test_a_class_of_test_that_train_lacks(ours, strange):
    benchmark = workloads.get("p1b2", configuration.load_named("benchmarks", "p1b2"))
    numbers = np.array([[0, 1], [1, 2]], np.float32)
    train, test = Table(numbers, [["BRCA", "LUAD"]]), Table(numbers, [["BRCA", strange]])
    with pytest.raises(StudyError, match=f"test: 1 classes have no sample in train \\('{strange}'") as error:
        benchmark.preprocess({"train": train, "test": test}, 1)
    ours(str(error.value))


# Files of images


def records(path, labels, compression="", feature=None):
    import tensorflow as tf

    image = tf.io.encode_png(np.zeros((4, 4, 3), np.uint8)).numpy()
    with tf.io.TFRecordWriter(str(path), tf.io.TFRecordOptions(compression_type=compression)) as writer:
        for label in labels:
            label = feature or tf.train.Feature(int64_list=tf.train.Int64List(value=[label]))
            encoded = tf.train.Feature(bytes_list=tf.train.BytesList(value=[image]))
            features = tf.train.Features(feature={"image/encoded": encoded, "image/class/label": label})
            writer.write(tf.train.Example(features=features).SerializeToString())


def labels_of(layout, path):
    from study.data.images.layouts import Source

    return [image.label for image in Source(layout, str(path)).images(image_codec)]


@pytest.mark.parametrize("compression", ["", "GZIP", "ZLIB"])
@pytest.mark.case("tfrecord-gzip", source="tensorflow/tensorflow #6164", right="[0, 1, 0]")
def test_compressed_tfrecords(tmp_path, ours, compression):
    records(tmp_path / "a.tfrecord", [1, 2, 1], compression)
    found = labels_of("tfrecord", tmp_path / "a.tfrecord")
    ours(found)
    assert found == [0, 1, 0]


@pytest.mark.parametrize("compression", ["GZIP", "ZLIB"])
@pytest.mark.case("tfrecord-gzip-cut-off", source="our own", right="refused as cut off")
def test_a_compressed_tfrecord_that_is_cut_off(tmp_path, ours, compression):
    path = tmp_path / "a.tfrecord"
    records(path, [1, 2, 1], compression)
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(StudyError, match="is cut off or damaged") as error:
        labels_of("tfrecord", path)
    ours(str(error.value))


@pytest.mark.parametrize(
    ("kind", "values", "words"),
    [
        ("float_list", [1.0], "is a list of floats, a list of whole numbers is expected"),
        ("bytes_list", [b"1"], "is bytes, a list of whole numbers is expected"),
        ("int64_list", [1, 2], "has 2 values, one is expected"),
        ("int64_list", [], "has 0 values, one is expected"),
    ],
)
@pytest.mark.case("tfrecord-label-kinds", source="vahidk/tfrecord #36", right="refused with what is wrong")
def test_labels_of_another_kind(tmp_path, ours, kind, values, words):
    import tensorflow as tf

    of_kind = {"float_list": tf.train.FloatList, "bytes_list": tf.train.BytesList, "int64_list": tf.train.Int64List}
    records(tmp_path / "a.tfrecord", [1], feature=tf.train.Feature(**{kind: of_kind[kind](value=values)}))
    with pytest.raises(StudyError, match=f"record 0: image/class/label {words}") as error:
        labels_of("tfrecord", tmp_path / "a.tfrecord")
    ours(str(error.value))


@pytest.mark.case("cifar100-as-cifar10", source="tensorflow/models PR #2024", right="refused as CIFAR-100, as a pickle")
def test_cifar_of_another_kind(tmp_path, ours):
    (tmp_path / "train.bin").write_bytes((b"\1\2" + bytes(3072)) * 5)
    (tmp_path / "data_batch_1").write_bytes(pickle.dumps({b"labels": [1]}, 2))
    (tmp_path / "good.bin.gz").write_bytes(gzip.compress((b"\1" + bytes(3072)) * 5))
    assert labels_of("cifar10", tmp_path / "good.bin.gz") == [1] * 5
    for name, words in (("train.bin", "CIFAR-100's, with two labels"), ("data_batch_1", "a Python pickle")):
        with pytest.raises(StudyError, match=words) as error:
            labels_of("cifar10", tmp_path / name)
        assert "cut off" not in str(error.value)
    ours("refused as CIFAR-100, as a pickle")


@pytest.mark.parametrize("layout", ["tfrecord", "cifar10", "mnist"])
@pytest.mark.parametrize("kind", ["lfs", "page", "zip", "tar.gz", "hdf5"])
@pytest.mark.case("lfs-pointer-or-web-page", source="benedekrozemberczki/datasets #10", right="refused as what it is")
def test_files_of_images_that_are_something_else(tmp_path, ours, layout, kind):
    content, name, _ = OTHERS[kind]
    path = tmp_path / "images-idx3"
    path.write_bytes(content)
    (tmp_path / "labels-idx1").write_bytes(content)
    with pytest.raises(StudyError) as error:
        labels_of(layout, path)
    ours(str(error.value).replace(f"{tmp_path}/", ""))
    assert name in str(error.value)
    assert "cut off" not in str(error.value)


@pytest.mark.parametrize("kind", OTHERS)
def test_no_bytes_crash_the_look(kind):
    content = OTHERS[kind][0]
    for size in range(len(content[:300])):
        file_kinds.kind_of_bytes(content[:size])

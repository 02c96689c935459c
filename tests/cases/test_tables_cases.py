"""Tables and files of other programs: read exactly, or refused as what they are."""

import gzip
import json
import pickle

import numpy as np
import pytest

from study import workloads
from study.backends.tensorflow import image_codec
from study.core import configuration
from study.core.errors import StudyError
from study.data.conversion import convert
from study.data.loaders import LOADERS, check_columns, load_matrix
from study.data.tabular import Form
from study.workloads.base import Table

NT3 = {"header": False, "codes": [{"column": 0, "values": [0, 1]}]}
P1B2 = {"header": True, "codes": [{"column": "cancer_type"}], "drop": ["case_id"]}
LINES = "".join(f"{row % 2}," + ",".join(f"{row * k / 7:.3f}" for k in range(9)) + "\n" for row in range(40)).encode()


def converted(folder, content, spec=NT3, name="data.csv"):
    path = folder / name
    path.write_bytes(content)
    convert(path, folder / "m.npy", folder / "m.json", Form.from_spec(spec))
    return np.load(folder / "m.npy")


def differing(folder, matrix, spec=NT3, name="data.csv"):
    """The loaders that give other bits than the conversion."""
    paths = {loader: folder / (name if LOADERS[loader].reads == "raw" else "m.npy") for loader in LOADERS}
    return [
        loader
        for loader, path in paths.items()
        if load_matrix(loader, path, folder / "m.json", spec).tobytes() != matrix.tobytes()
    ]


def refusal(folder, content, spec=NT3, name="data.csv"):
    with pytest.raises(StudyError) as error:
        converted(folder, content, spec, name)
    assert "\n" not in str(error.value)
    assert not (folder / "m.npy").exists()
    return str(error.value).replace(f"{folder}/", "")


@pytest.mark.case("csv-float32-midpoints", source="pandas-dev/pandas #17154", right="0 values differ")
def test_midpoints_of_float32(tmp_path):
    drawn = np.random.default_rng(7)
    a = np.log2(1 + drawn.gamma(2, 30, (40, 60))).astype(np.float32)
    b = (a + drawn.normal(0, 0.05, a.shape)).astype(np.float32)
    rows = ((a.astype(np.float64) + b) / 2).tolist()
    text = "".join(",".join([str(r % 2), *map(repr, row)]) + "\n" for r, row in enumerate(rows))
    matrix = converted(tmp_path, text.encode())
    assert matrix[:, 1:].tobytes() == np.array(rows).astype(np.float32).tobytes()
    found = differing(tmp_path, matrix)
    assert found == []


@pytest.mark.case("csv-negative-zero", source="our own", right="-0 in all loaders")
def test_a_column_of_integers_keeps_the_sign_of_zero_and_what_exceeds_64_bits(tmp_path):
    matrix = converted(tmp_path, b"0,-0,18446744073709551617\n1,0,-123456789012345678901234567890\n")
    assert np.signbit(matrix[0, 1])
    assert differing(tmp_path, matrix) == []


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
def test_names_that_are_not_ascii(tmp_path, header, column):
    message = refusal(tmp_path, header + b"c1,BRCA,1,2,3\n", P1B2)
    assert column in message
    assert "is not ASCII" in message


@pytest.mark.case("csv-header-names-alike", source="our own", right="three columns, other than those of test")
def test_names_that_differ_in_case_or_blanks_stay_different(tmp_path):
    files = {}
    for split, names in (("train", "a,A, a"), ("test", "a, a,A")):
        folder = tmp_path / split
        folder.mkdir()
        converted(folder, f"case_id,cancer_type,{names}\nc1,BRCA,1,2,3\n".encode(), P1B2)
        files[split] = {"path": str(folder / "data.csv"), "sidecar": str(folder / "m.json")}
    with pytest.raises(StudyError, match="other names or order"):
        check_columns(files, {split: {**P1B2, "split": split} for split in files})


@pytest.mark.parametrize("name", ["data.csv.gz", "data.csv"])
@pytest.mark.parametrize("parts", [1, 3], ids=["one part", "three parts"])
@pytest.mark.case("csv-gzip", source="cytomining/pycytominer #95", right="read by every loader")
def test_tables_compressed_with_gzip(tmp_path, name, parts):
    size = -(-len(LINES) // parts)
    content = b"".join(gzip.compress(LINES[begin : begin + size]) for begin in range(0, len(LINES), size))
    matrix = converted(tmp_path, content, name=name)
    assert json.loads((tmp_path / "m.json").read_text())["source"]["bytes"] == len(content)
    other = tmp_path / "plain"
    other.mkdir()
    assert matrix.tobytes() == converted(other, LINES).tobytes()
    assert differing(tmp_path, matrix, name=name) == []


@pytest.mark.parametrize("lost", [4, 9, 100])
@pytest.mark.case("csv-gzip-cut-off", source="our own", right="refused as cut off")
def test_a_compressed_table_that_is_cut_off(tmp_path, lost):
    message = refusal(tmp_path, gzip.compress(LINES)[:-lost])
    assert "compressed with gzip, and is cut off or damaged" in message


@pytest.mark.parametrize("name", ["data.csv.gz", "data.bz2", "data.xz", "d[1].csv", "d*.csv", "a::b.csv", "d e.csv"])
@pytest.mark.case("paths-of-own-data", source="snakemake #2981; datasets #5757", right="read by every loader")
def test_names_of_files_have_no_meaning(tmp_path, name):
    """Endings that libraries decompress by, and characters that are patterns or URLs to them."""
    assert differing(tmp_path, converted(tmp_path, LINES, name=name), name=name) == []


@pytest.mark.case("csv-semicolons", source="HKUDS/Vibe-Trading PR #865", right="refused, with the separator")
def test_semicolons_and_decimal_commas(tmp_path):
    message = refusal(tmp_path, LINES.replace(b",", b";").replace(b".", b","))
    assert "line 1 has 9 semicolons: separate the values by commas, and decimal points instead of" in message


# P1B3


@pytest.fixture(scope="module")
def p1b3():
    spec = configuration.load_named("benchmarks", "p1b3")
    spec["model"]["feature_subsample"] = 20
    benchmark = workloads.load_workload("p1b3", spec)
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
def test_keys_that_another_file_spells_otherwise(p1b3, tmp_path, how):
    file, change = SPELLINGS[how]
    with pytest.raises(StudyError, match=r"names match no row of .*, which spells them otherwise \(") as error:
        arranged(p1b3, tmp_path, **{file: change})
    assert "(unmatched_at_most.spelled_otherwise in config/benchmarks/p1b3.yaml)" in str(error.value)


@pytest.mark.case("p1b3-keys-unknown", source="our own", right="counted, or refused above the share")
def test_keys_without_a_row_are_counted_and_refused_above_a_share(p1b3, tmp_path):
    for name in "abc":
        (tmp_path / name).mkdir()
    few = arranged(p1b3, tmp_path / "a", response=first_cells(lambda _: "999999", every=10))
    assert few.unmatched["responses_without_expression"] == 0
    assert few.unmatched["responses_without_descriptors"] > 0
    with pytest.raises(StudyError, match=r"rows \(\d+\.\d%\) match no row of .*such as '999999'; at most 50.0% may"):
        arranged(p1b3, tmp_path / "b", response=first_cells(lambda _: "999999"))
    with pytest.raises(StudyError, match=r"test_drugs.txt: 1 of \d+ rows .* such as '999999'; at most 0.0% may"):
        arranged(p1b3, tmp_path / "c", test_drugs=lambda text: text + "999999\n")


@pytest.mark.parametrize("strange", ["luad", "LUAD ", "KIRC"])
@pytest.mark.case("p1b2-classes-of-test", source="our own", right="refused")
def test_a_class_of_test_that_train_lacks(strange):
    benchmark = workloads.load_workload("p1b2", configuration.load_named("benchmarks", "p1b2"))
    numbers = np.array([[0, 1], [1, 2]], np.float32)
    train, test = Table(numbers, [["BRCA", "LUAD"]]), Table(numbers, [["BRCA", strange]])
    with pytest.raises(StudyError, match=f"test: 1 classes have no sample in train \\('{strange}'"):
        benchmark.preprocess({"train": train, "test": test}, 1)


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
def test_compressed_tfrecords(tmp_path, compression):
    records(tmp_path / "a.tfrecord", [1, 2, 1], compression)
    found = labels_of("tfrecord", tmp_path / "a.tfrecord")
    assert found == [0, 1, 0]


@pytest.mark.parametrize("compression", ["GZIP", "ZLIB"])
@pytest.mark.case("tfrecord-gzip-cut-off", source="our own", right="refused as cut off")
def test_a_compressed_tfrecord_that_is_cut_off(tmp_path, compression):
    path = tmp_path / "a.tfrecord"
    records(path, [1, 2, 1], compression)
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(StudyError, match="is cut off or damaged"):
        labels_of("tfrecord", path)


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
def test_labels_of_another_kind(tmp_path, kind, values, words):
    import tensorflow as tf

    of_kind = {"float_list": tf.train.FloatList, "bytes_list": tf.train.BytesList, "int64_list": tf.train.Int64List}
    records(tmp_path / "a.tfrecord", [1], feature=tf.train.Feature(**{kind: of_kind[kind](value=values)}))
    with pytest.raises(StudyError, match=f"record 0: image/class/label {words}"):
        labels_of("tfrecord", tmp_path / "a.tfrecord")


@pytest.mark.case("cifar100-as-cifar10", source="tensorflow/models PR #2024", right="refused as CIFAR-100, as a pickle")
def test_cifar_of_another_kind(tmp_path):
    (tmp_path / "train.bin").write_bytes((b"\1\2" + bytes(3072)) * 5)
    (tmp_path / "data_batch_1").write_bytes(pickle.dumps({b"labels": [1]}, 2))
    (tmp_path / "good.bin.gz").write_bytes(gzip.compress((b"\1" + bytes(3072)) * 5))
    assert labels_of("cifar10", tmp_path / "good.bin.gz") == [1] * 5
    for name, words in (("train.bin", "CIFAR-100's, with two labels"), ("data_batch_1", "a Python pickle")):
        with pytest.raises(StudyError, match=words) as error:
            labels_of("cifar10", tmp_path / name)
        assert "cut off" not in str(error.value)

"""Data of benchmarks: tables, their conversions, sidecars, scalers, and the formats that loads are measured with."""

import gzip
import io
import json
import math
import zipfile
import zlib

import damage
import hypothesis.strategies as st
import numpy as np
from readers import NOTHING_TO_COMPARE, Reader, reader

from study.core import file_kinds
from study.core.errors import StudyError
from study.core.files import noted_checksum
from study.data import arrow_blocks, feature_scaling, formats, loaders, source_state, text_table
from study.data.conversion import convert
from study.data.tabular import SEPARATORS, Form

RAW_LOADERS = [name for name, loader in loaders.LOADERS.items() if loader.reads == "raw"]

FORMS = {
    "labels": (
        {"header": False, "codes": [{"column": 0, "values": [0, 1]}]},
        "0,1.5,2\n1,3,4.25\n0,-5e-3,6\n1,+7,.5\n",
    ),
    "categories": (
        {"header": True, "codes": [{"column": "type"}], "drop": ["id"]},
        "id,type,a,b\ns1,lung,1,2.5\ns2,skin,0.25,4\ns3,lung,-1e2,3\n",
    ),  # fmt: skip
    "missing": (
        {"header": True, "separator": "tab", "codes": [{"column": "cell"}], "missing": ["na", "", "NaN"]},
        "cell\ta\tb\nx\t1\tna\ny\t\t2.5\nz\tNaN\t0.125\n",
    ),  # fmt: skip
    "kept": ({"header": True, "keep": ["b", "a"]}, "a,x,b\n1,one,2\n3,two,4.5\n"),
}
MISSING = {"na", "", "NaN"}


def independent(path, spec):
    """The matrix by Python's own means: a line's values apart, each the nearest float64, then float32."""
    form, text = Form.of(spec), path.read_bytes().decode("ascii")
    lines = [line.removesuffix("\r") for line in text.split("\n")[:-1]]
    rows = [line.split(SEPARATORS[spec.get("separator", "comma")]) for line in lines]
    names = rows.pop(0) if form.header else list(range(len(rows[0])))
    assert len({*names}) == len(names) and {len(row) for row in rows} == {len(names)}
    numbers = form.numbers(names)
    known = []
    for code, allowed in zip(form.codes, form.values, strict=True):
        found = [row[names.index(code)] for row in rows]
        known.append(sorted(set(found)) if allowed is None else list(allowed))
    matrix = np.empty((len(rows), len(form.codes) + len(numbers)), np.float32)
    for place, row in enumerate(rows):
        for which, code in enumerate(form.codes):
            value = row[names.index(code)]
            matrix[place, which] = known[which].index(value if form.values[which] is None else float(value))
        for which, name in enumerate(numbers, len(form.codes)):
            value = row[names.index(name)]
            assert value in form.missing or all(c in "0123456789+-.eE \t" for c in value), value
            matrix[place, which] = math.nan if value in form.missing else np.float32(float(value))
    return matrix


def bits(matrix):
    """A matrix as its shape and its bytes, where every missing number is the same one."""
    matrix = np.array(matrix, np.float32)
    matrix[np.isnan(matrix)] = np.nan
    return matrix.shape, (matrix + np.float32(0)).tobytes().hex()


class Dataset(Reader):
    """A table that is converted, and then loaded by every loader; all give the bits that Python finds."""

    kind = ""

    def prepare(self, folder):
        self.spec, text = FORMS[self.kind]
        path = folder / "source.csv"
        path.write_text(text)
        return path

    def damage(self, content):
        return damage.csv_files(content, SEPARATORS[self.spec.get("separator", "comma")])

    def read(self, path):
        matrix, sidecar = path.with_name("out.npy"), path.with_name("out.json")
        convert(path, matrix, sidecar, Form.of(self.spec))
        found = bits(np.load(matrix))
        for name in RAW_LOADERS:
            same = bits(loaders.load(name, path, sidecar, self.spec))
            assert same == found, f"the loader {name} gives {same}, the conversion {found}"
        assert bits(loaders.load("npy", matrix, sidecar, self.spec)) == found
        return found

    def expect(self, path):
        return bits(independent(path, self.spec))


for _kind in FORMS:
    reader(
        f"a dataset's table with {_kind}",
        "csv",
        "study.data.text_file:opened",
        "study.data.text_file:content",
        "study.data.text_file:_Seen.readinto",
        "study.data.text_table:_whole_lines",
        "study.data.text_table:_Buffers.read",
        "study.data.conversion:_blocks",
        "study.data.loaders:read_csv",
        "study.data.loaders:chunked",
        "study.data.loaders:dask_dataframe",
        "study.data.loaders:_loadtxt",
        "study.data.loaders:_parsed",
    )(type(_kind, (Dataset,), {"kind": _kind}))


@reader("a dataset's table that gzip compressed", "gz", "study.data.text_file:opened", "study.data.text_file:content")
class CompressedTable(Dataset):
    """The content decides whether it is decompressed, not the name."""

    kind = "categories"

    def prepare(self, folder):
        path = super().prepare(folder)
        path.write_bytes(gzip.compress(path.read_bytes()))
        return path

    def damage(self, content):
        return damage.gz_files(content, damage.csv_files)

    def expect(self, path):
        content = path.read_bytes()
        plain = path.with_name("plain.csv")
        plain.write_bytes(gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content)
        return bits(independent(plain, self.spec))


@reader("a file of another kind", "zip", "study.core.file_kinds:first_bytes", "study.core.file_kinds:_zipped")
class OtherKind(Reader):
    """What a file is called never fails; a damaged archive is still one."""

    def prepare(self, folder):
        path = folder / "source.csv"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("xl/workbook.xml", "<?xml version='1.0'?>" * 20)
            archive.writestr("xl/sheet.xml", "")
        self.whole = path.read_bytes()
        return path

    def damage(self, content):
        more = [gzip.compress(content), gzip.compress(content)[:-9], zlib.compress(content)[:30], content[:40]]
        return damage.cut(content, (b"\0", b"\xff", b"PK\x05\x06", b"PK\x01\x02")) | st.sampled_from(more)

    def read(self, path):
        kind = file_kinds.kind_of(path)
        assert file_kinds.instead_or_bytes(path)
        return path.read_bytes() != self.whole or "Excel" in kind.name

    def expect(self, path):
        return True


@reader("the note of what was converted, in a sidecar", "json", "study.data.source_state:_described")
class Note(Reader):
    """A source that was not changed keeps its token, or is converted again because the note cannot be read."""

    def prepare(self, folder):
        self.source = folder / "source.csv"
        self.source.write_text("1,2.5\n3,4.5\n")
        convert(self.source, folder / "out.npy", folder / "out.json", Form.of({"header": False}), token="abc")
        return folder / "out.json"

    def damage(self, content):
        return damage.json_files(content)

    def read(self, path):
        source_state.token([str(self.source)], path, ["a"])
        return source_state.token([str(self.source)], path)

    def expect(self, path):
        try:
            told = json.loads(path.read_text())
            noted = told["read"]
            state = source_state.state([str(self.source)])
            same = (noted["files"], noted["bytes"], noted["digest"], noted.get("sample")) == (
                state.files, state.bytes, state.digest, None
            )  # fmt: skip
        except (ValueError, KeyError, TypeError, RecursionError):
            return NOTHING_TO_COMPARE
        found = self.read(path)
        return NOTHING_TO_COMPARE if found is None else noted["token"] if same else state.token


@reader("a dataset's table, without the compiled parser", "csv", "study.data.arrow_blocks:_numbers")
class WithoutCompiled(Dataset):
    kind = "labels"

    def read(self, path):
        before, text_table.compiled = text_table.compiled, None
        try:
            matrix, sidecar = path.with_name("out.npy"), path.with_name("out.json")
            assert arrow_blocks.leading_columns(Form.of(self.spec), [0, 1, 2]) == 1
            convert(path, matrix, sidecar, Form.of(self.spec))
            found = bits(np.load(matrix))
            assert bits(loaders.load("parallel", path, sidecar, self.spec)) == found
        finally:
            text_table.compiled = before
        return found


@reader("a dataset's table that was changed after its conversion", "csv", "study.data.loaders:load_with_lines")
class ChangedTable(Dataset):
    """What a loader gives is what stands there, or it is refused; none gives a part of it."""

    kind = "categories"

    def prepare(self, folder):
        path = super().prepare(folder)
        self.sidecar = path.with_name("out.json")
        convert(path, path.with_name("out.npy"), self.sidecar, Form.of(self.spec))
        return path

    def read(self, path):
        refused, found = None, set()
        for name in RAW_LOADERS:
            try:
                found.add(bits(loaders.load(name, path, self.sidecar, self.spec)))
            except StudyError as error:
                assert path.name in str(error), error
                refused = error
        if refused:
            raise refused
        return sorted(found)

    def expect(self, path):
        return [bits(independent(path, self.spec))]


@reader("numbers in text", "csv", "study.data.text_table:_Buffers.read")
class Numbers(Reader):
    """A column of numbers of every length, against Python's float."""

    def prepare(self, folder):
        path = folder / "source.csv"
        path.write_text("1,2.5\n3,4\n")
        return path

    def damage(self, content):
        digits = st.text("0123456789", min_size=1, max_size=25)
        word = st.builds("{}{}{}{}".format, st.sampled_from(["", "-", "+"]), digits,
                         st.one_of(st.just(""), digits.map(".{}".format)),
                         st.one_of(st.just(""), st.integers(-400, 400).map("e{}".format)))  # fmt: skip
        exact = st.floats(allow_nan=False, allow_infinity=False).map(repr)
        single = st.floats(width=32, allow_nan=False, allow_infinity=False).map(float)
        # Halfway between two float32, and a hair beside: where rounding twice goes wrong.
        half = single.map(lambda x: (x + float(np.nextafter(np.float32(x), np.float32(np.inf)))) / 2)
        middle = st.builds("{:.60f}{}".format, half, st.sampled_from(["", "1", "0"]))
        line = st.tuples(st.one_of(word, exact, middle), st.one_of(word, exact, middle)).map(",".join)
        return st.lists(line, min_size=1, max_size=30).map(lambda lines: ("\n".join(lines) + "\n").encode())

    def read(self, path):
        matrix, sidecar = path.with_name("out.npy"), path.with_name("out.json")
        convert(path, matrix, sidecar, Form.of({"header": False}))
        found = bits(np.load(matrix))
        assert bits(loaders.load("parallel", path, sidecar, {"header": False})) == found
        return found

    def expect(self, path):
        return bits(independent(path, {"header": False}))


class Converted(Reader):
    """A converted table, its sidecar, its scalers."""

    file = "matrix.npy"
    spec = {"header": True, "codes": [{"column": "type"}]}

    def prepare(self, folder):
        self.folder = folder
        source = folder / "source.csv"
        source.write_text("type,a,b\n" + "".join(f"{'xy'[n % 2]},{n / 3},{n * n}\n" for n in range(40)))
        convert(source, folder / "matrix.npy", folder / "matrix.json", Form.of(self.spec))
        numbers = np.load(folder / "matrix.npy")[:, 1:]
        feature_scaling.save({"train": feature_scaling.min_max(numbers), "other": feature_scaling.max_abs(numbers)},
                             folder / "scalers.npz")  # fmt: skip
        return folder / self.file


@reader("a converted matrix", "npy", "study.data.matrix_file:load")
class Matrix(Converted):
    def damage(self, content):
        return damage.npy_files(content)

    def read(self, path):
        found = loaders.load("npy", path, self.folder / "matrix.json", self.spec)
        mapped = loaders.map_matrix(path)
        assert isinstance(mapped, np.memmap)
        loaders.touch(mapped)
        assert found.tobytes() == np.array(mapped).tobytes()
        return bits(found)

    def expect(self, path):
        return bits(np.lib.format.read_array(io.BytesIO(path.read_bytes()), allow_pickle=False))


@reader("a table's sidecar", "json", "study.data.loaders:read_sidecar")
class Sidecar(Converted):
    file = "matrix.json"

    def damage(self, content):
        return damage.json_files(content)

    def read(self, path):
        matrix = loaders.load("npy", self.folder / "matrix.npy", path, self.spec)
        loaders.load("parallel", self.folder / "source.csv", path, self.spec)
        loaders.check_columns({"train": {"path": "train", "sidecar": path}, "test": {"path": "test", "sidecar": path}},
                              {"train": {"split": "train"}, "test": {"split": "test"}})  # fmt: skip
        return [list(matrix.shape), [code["values"] for code in loaders.read_sidecar(path)["codes"]]]

    def expect(self, path):
        told = json.loads(path.read_text())
        return [told["shape"], [code["values"] for code in told["codes"]]]

    def names(self, path):
        return path.name, "source.csv"


@reader(
    "scalers",
    "npz",
    "study.data.matrix_file:arrays",
    "study.data.matrix_file:_array",
)
class Scalers(Converted):
    file = "scalers.npz"

    def damage(self, content):
        return damage.npz_files(content)

    def read(self, path):
        scaler = feature_scaling.saved(path, "train")
        return [scaler.subtract is not None and scaler.subtract.tolist(), scaler.divide.tolist()]

    def expect(self, path):
        with np.load(path, allow_pickle=False) as arrays:
            known = {name: arrays[name].tolist() for name in arrays.files}
        return [known.get("train.subtract", False), known["train.divide"]]


class Stored(Reader):
    """A matrix in a format that loads are measured with."""

    format = ""

    def prepare(self, folder):
        self.matrix = np.arange(60, dtype=np.float32).reshape(12, 5) / 7
        path = folder / f"matrix.{self.format}"
        formats.FORMATS[self.format].write(self.matrix, path)
        (folder / "matrix.json").write_text(json.dumps({
            "shape": [12, 5], "codes": [], "columns": [5, "x"], "source": {"bytes": 3, "sha256": "0"}}))  # fmt: skip
        return path

    def read(self, path):
        return bits(loaders.load(self.format, path, path.with_name("matrix.json"), {"header": False}))


@reader("a matrix in TFRecords", "tfrecord", "study.backends.tensorflow.matrix_records:read", slow=True)
class StoredTFRecords(Stored):
    format = "tfrecord"

    def damage(self, content):
        import tensorflow as tf

        def example(**features):
            return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()

        def floats(values):
            return tf.train.Feature(float_list=tf.train.FloatList(value=values))

        others = [
            example(row=floats([1.0] * 4)),
            example(row=floats([1.0] * 6)),
            example(),
            example(other=floats([1.0] * 5)),
            example(row=tf.train.Feature(int64_list=tf.train.Int64List(value=[1] * 5))),
            example(row=floats([])),
            example(row=floats([math.nan] * 5)),
        ]
        return damage.tfrecord_files(content, _write_records, others)

    def expect(self, path):
        import tensorflow as tf

        rows = [tf.train.Example.FromString(each).features.feature["row"].float_list.value
                for each in damage.records_of(path.read_bytes())]  # fmt: skip
        return bits(np.array(rows, np.float32))


def _write_records(records):
    """The bytes of a TFRecord file."""
    import tempfile

    import tensorflow as tf

    with tempfile.TemporaryDirectory() as folder:
        with tf.io.TFRecordWriter(f"{folder}/x") as writer:
            for each in records:
                writer.write(each)
        with open(f"{folder}/x", "rb") as handle:
            return handle.read()


def lmdb_bytes(entries):
    """A database with these (key, value)."""
    import tempfile

    import lmdb

    with tempfile.TemporaryDirectory() as folder:
        with (
            lmdb.open(f"{folder}/x", subdir=False, lock=False, map_size=1 << 24) as environment,
            environment.begin(write=True) as transaction,
        ):
            for key, value in entries:
                transaction.put(key, value)
        with open(f"{folder}/x", "rb") as handle:
            return handle.read()


def lmdb_files(content, entries, values):
    """Damaged databases: cut off, with other entries, with a damaged first page. values: others than the right ones."""

    @st.composite
    def others(draw):
        found = list(entries)
        place = draw(st.integers(0, len(found) - 1))
        key, value = found[place]
        change = draw(st.sampled_from(["drop", "value", "key", "add", "none"]))
        if change == "drop":
            del found[place]
        elif change == "value":
            found[place] = key, draw(st.sampled_from(values))
        elif change == "key":
            found[place] = draw(st.sampled_from([b"x", b"0", key[:-1], key + b"0", b"9999999999"])), value
        elif change == "add":
            found.append((draw(st.sampled_from([b"x", b"9999999999"])), draw(st.sampled_from(values))))
        else:
            found = []
        return lmdb_bytes(found)

    @st.composite
    def truncated(draw):
        return content[: draw(st.sampled_from([0, 1, 100, 4095, 4096, 8191, 8192, 8193, 12288, len(content) - 4096,
                                               len(content) - 1]))]  # fmt: skip

    @st.composite
    def header(draw):
        at = draw(st.integers(0, 200)) + draw(st.sampled_from([0, 4096]))
        return content[:at] + bytes([content[at] ^ 1 << draw(st.integers(0, 7))]) + content[at + 1 :]

    @st.composite
    def page(draw):
        at = draw(st.integers(8192, max(8193, len(content) - 1)))
        return content[:at] + bytes([content[at] ^ 1 << draw(st.integers(0, 7))]) + content[at + 1 :]

    noise = st.sampled_from(
        [
            b"\0" * len(content),
            b"\xff" * len(content),
            content[:8192] + b"\0" * (len(content) - 8192),
            content[:8192] + b"\xff" * (len(content) - 8192),
            content + b"\0" * 4096,
            content + b"x",
        ]
    )
    return st.one_of(others(), others(), truncated(), header(), page(), noise)


@reader("a matrix in LMDB", "lmdb", "study.data.formats:_read_lmdb")
class StoredLMDB(Stored):
    format = "lmdb"

    def damage(self, content):
        entries = [(b"%010d" % place, row.tobytes()) for place, row in enumerate(self.matrix)]
        return lmdb_files(
            content, entries, [b"", b"abc", np.float32(3).tobytes(), self.matrix[:2].tobytes(), b"\0" * 20]
        )

    def expect(self, path):
        import lmdb

        with (
            lmdb.open(str(path), subdir=False, lock=False, readonly=True) as environment,
            environment.begin() as reading,
        ):
            rows = [reading.get(b"%010d" % place) for place in range(12)]
            assert reading.stat()["entries"] == 12
        return bits(np.array([np.frombuffer(row, np.float32) for row in rows]))


@reader("the checksum of a download", "text", "study.core.files:noted_checksum")
class Noted(Reader):
    def prepare(self, folder):
        path = folder / "train.csv.sha256"
        path.write_text("0" * 64 + "  train.csv\n")
        return path

    def damage(self, content):
        return damage.cut(content, (b"\n", b" ", b"\xff", b"\0", b"x"))

    def read(self, path):
        return noted_checksum(path)

    def expect(self, path):
        return path.read_text(encoding="utf-8").split()[0]

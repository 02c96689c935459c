"""Tables of benchmarks: what the conversion and every loader make of them."""

import gzip
import math
import zipfile

import damage
import hypothesis.strategies as st
import numpy as np
from readers import Reader, reader

from study.core import file_kinds
from study.core.errors import StudyError
from study.data import loaders
from study.data.conversion import convert
from study.data.tabular import SEPARATORS, Form

RAW_LOADERS = [name for name, loader in loaders.LOADERS.items() if loader.reads == "raw"]
CATEGORIES = {
    "spec": {"header": True, "codes": [{"column": "type"}], "drop": ["id"]},
    "text": "id,type,a,b\ns1,lung,1,2.5\ns2,skin,0.25,4\ns3,lung,-1e2,3\n",
}


def read_by_python(content, spec):
    """The matrix by Python's own means: a line's values apart, each the nearest float64, then float32; as `to_bits`."""
    form, text = Form.from_spec(spec), content.decode("ascii")
    lines = [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]
    rows = [line.split(SEPARATORS[spec.get("separator", "comma")]) for line in lines]
    names = rows.pop(0) if form.header else list(range(len(rows[0])))
    assert len({*names}) == len(names) and {len(row) for row in rows} == {len(names)}
    columns = []
    for code, allowed in zip(form.codes, form.values, strict=True):
        values = [row[names.index(code)] for row in rows]
        known = sorted({*values}) if allowed is None else list(allowed)
        columns.append([known.index(value if allowed is None else float(value)) for value in values])
    for name in form.select_numbers(names):
        values = [row[names.index(name)] for row in rows]
        assert all(value in form.missing or not {*value} - {*"0123456789+-.eE \t"} for value in values), values
        columns.append([math.nan if value in form.missing else np.float32(float(value)) for value in values])
    return to_bits(np.array(columns, np.float32).T)


def to_bits(matrix):
    """A matrix as its shape and its bytes, where every missing number is the same one."""
    matrix = np.array(matrix, np.float32)
    matrix[np.isnan(matrix)] = np.nan
    return matrix.shape, (matrix + np.float32(0)).tobytes().hex()


@reader("a dataset's table with labels", "csv", spec={"header": False, "codes": [{"column": 0, "values": [0, 1]}]},
        text="0,1.5,2\n1,3,4.25\n0,-5e-3,6\n1,+7,.5\n")  # fmt: skip
@reader("a dataset's table with categories", "csv", **CATEGORIES)
@reader("a dataset's table with missing", "csv", text="cell\ta\tb\nx\t1\tna\ny\t\t2.5\nz\tNaN\t0.125\n",
        spec={"header": True, "separator": "tab", "codes": [{"column": "cell"}], "missing": ["na", "", "NaN"]},
        )  # fmt: skip
@reader("a dataset's table with kept", "csv", spec={"header": True, "keep": ["b", "a"]},
        text="a,x,b\n1,one,2\n3,two,4.5\n")  # fmt: skip
class Table(Reader):
    """A table that is converted, and then loaded by every loader; all give the bits that Python finds."""

    spec, text = {}, ""

    def prepare(self, folder):
        path = folder / "source.csv"
        path.write_text(self.text)
        return path

    def damage(self, content):
        return damage.csv_files(content, SEPARATORS[self.spec.get("separator", "comma")])

    def read(self, path):
        matrix, sidecar = path.with_name("out.npy"), path.with_name("out.json")
        convert(path, matrix, sidecar, Form.from_spec(self.spec))
        bits = to_bits(np.load(matrix))
        for name, source in [*((name, path) for name in RAW_LOADERS), ("npy", matrix)]:
            loaded = to_bits(loaders.load_matrix(name, source, sidecar, self.spec))
            assert loaded == bits, f"the loader {name} gives {loaded}, the conversion {bits}"
        return bits

    def expect(self, path):
        return read_by_python(path.read_bytes(), self.spec)


@reader("a dataset's table that gzip compressed", "gz", **CATEGORIES)
class CompressedTable(Table):
    """The content decides whether it is decompressed, not the name."""

    def prepare(self, folder):
        path = super().prepare(folder)
        path.write_bytes(gzip.compress(path.read_bytes()))
        return path

    def damage(self, content):
        return damage.gz_files(content, damage.csv_files)

    def expect(self, path):
        content = path.read_bytes()
        return read_by_python(gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content, self.spec)


@reader("a dataset's table that was changed after its conversion", "csv", **CATEGORIES)
class ChangedTable(Table):
    """What a loader gives is what stands there, or it is refused; none gives a part of it."""

    def prepare(self, folder):
        path = super().prepare(folder)
        convert(path, path.with_name("out.npy"), path.with_name("out.json"), Form.from_spec(self.spec))
        return path

    def read(self, path):
        refusal, loaded = None, []
        for name in RAW_LOADERS:
            try:
                loaded.append(to_bits(loaders.load_matrix(name, path, path.with_name("out.json"), self.spec)))
            except StudyError as error:
                assert path.name in str(error), error
                refusal = error
        if refusal:
            raise refusal
        assert len({*loaded}) == 1
        return loaded[0]


@reader("a file of another kind", "zip")
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
        compressed = gzip.compress(content)
        return damage.cut(content) | st.sampled_from([compressed, compressed[:-9], content[:40]])

    def read(self, path):
        kind = file_kinds.recognize_file(path)
        assert file_kinds.describe_file(path)
        return path.read_bytes() != self.whole or "zip" in kind.name

    def expect(self, path):
        return True

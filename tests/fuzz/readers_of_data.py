"""Tables of benchmarks: what the conversion and every loader make of them."""

import gzip
import math
import zipfile
import zlib

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


def independent(path, spec):
    """The matrix by Python's own means: a line's values apart, each the nearest float64, then float32."""
    form, text = Form.from_spec(spec), path.read_bytes().decode("ascii")
    lines = [line.removesuffix("\r") for line in text.split("\n")[:-1]]
    rows = [line.split(SEPARATORS[spec.get("separator", "comma")]) for line in lines]
    names = rows.pop(0) if form.header else list(range(len(rows[0])))
    assert len({*names}) == len(names) and {len(row) for row in rows} == {len(names)}
    numbers = form.select_numbers(names)
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
        convert(path, matrix, sidecar, Form.from_spec(self.spec))
        found = bits(np.load(matrix))
        for name in RAW_LOADERS:
            same = bits(loaders.load_matrix(name, path, sidecar, self.spec))
            assert same == found, f"the loader {name} gives {same}, the conversion {found}"
        assert bits(loaders.load_matrix("npy", matrix, sidecar, self.spec)) == found
        return found

    def expect(self, path):
        return bits(independent(path, self.spec))


for _kind in FORMS:
    reader(f"a dataset's table with {_kind}", "csv")(type(_kind, (Dataset,), {"kind": _kind}))


@reader("a dataset's table that gzip compressed", "gz")
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
        more = [gzip.compress(content), gzip.compress(content)[:-9], zlib.compress(content)[:30], content[:40]]
        return damage.cut(content, (b"\0", b"\xff", b"PK\x05\x06", b"PK\x01\x02")) | st.sampled_from(more)

    def read(self, path):
        kind = file_kinds.recognize_file(path)
        assert file_kinds.describe_file(path)
        return path.read_bytes() != self.whole or "Excel" in kind.name

    def expect(self, path):
        return True


@reader("a dataset's table that was changed after its conversion", "csv")
class ChangedTable(Dataset):
    """What a loader gives is what stands there, or it is refused; none gives a part of it."""

    kind = "categories"

    def prepare(self, folder):
        path = super().prepare(folder)
        self.sidecar = path.with_name("out.json")
        convert(path, path.with_name("out.npy"), self.sidecar, Form.from_spec(self.spec))
        return path

    def read(self, path):
        refused, found = None, set()
        for name in RAW_LOADERS:
            try:
                found.add(bits(loaders.load_matrix(name, path, self.sidecar, self.spec)))
            except StudyError as error:
                assert path.name in str(error), error
                refused = error
        if refused:
            raise refused
        return sorted(found)

    def expect(self, path):
        return [bits(independent(path, self.spec))]


@reader("numbers in text", "csv")
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
        convert(path, matrix, sidecar, Form.from_spec({"header": False}))
        found = bits(np.load(matrix))
        assert bits(loaders.load_matrix("parallel", path, sidecar, {"header": False})) == found
        return found

    def expect(self, path):
        return bits(independent(path, {"header": False}))

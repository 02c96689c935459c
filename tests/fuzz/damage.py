"""Strategies that damage files by their structure: each takes a valid file's content and gives broken ones.

Most of what they give must be refused; some is still valid, and must then be read as it stands.
"""

import copy
import csv
import gzip
import io
import json
import math
import struct

import hypothesis.strategies as st
import yaml

ODD = [None, True, False, "", " ", "x" * 3000, "../../etc/passwd", "a; rm -rf /", "$(id)", "Ω\n\t", "none", "nt3", -1,
       0, 1, 7, 2.0, 2.5, 10**9, 10**30, -(10**18), 1e-320, 1e300, [], [[]], [1, 1], [None], {}, {"a": 1}, {"": []},
       [1, "two", 3.0], {"benchmark": "nt3"}, "NaN", "1e3", "0x10", "yes", "1,5", "\ud800", "\0"]  # fmt: skip
NEW_KEYS = ["unknown", "base", "path", "trace", "queue", "", "schema_version", "__class__", "status"]
MOST_CHANGES = 3


def places(value, path=()):
    """Every path in a nested value, the value's own first."""
    yield path
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield from places(child, (*path, key))


@st.composite
def changed(draw, content, odd=tuple(ODD), keys=tuple(NEW_KEYS)):
    """A nested value with one to three changes of its values, keys or lists."""
    content = copy.deepcopy(content)
    for _ in range(draw(st.integers(1, MOST_CHANGES))):
        path = draw(st.sampled_from([each for each in places(content) if each] or [()]))
        if not path:
            return copy.deepcopy(draw(st.sampled_from(odd)))
        parent = content
        for key in path[:-1]:
            parent = parent[key]
        change, last = draw(st.sampled_from(["replace", "delete", "rename", "add", "wrap", "repeat"])), path[-1]
        if change == "delete":
            del parent[last]
        elif change == "wrap":
            parent[last] = [parent[last]]
        elif change == "repeat" and isinstance(parent, list):
            parent.append(copy.deepcopy(parent[last]))
        elif change == "rename" and isinstance(parent, dict):
            parent[draw(st.sampled_from([f"{last}s", str(last)[1:], "unknown"]))] = parent.pop(last)
        elif change == "add" and isinstance(parent, dict):
            parent[draw(st.sampled_from(keys))] = copy.deepcopy(draw(st.sampled_from(odd)))
        else:
            parent[last] = copy.deepcopy(draw(st.sampled_from(odd)))
    return content


@st.composite
def cut(draw, content, pieces=(b"",)):
    """A file with a piece taken out, doubled, replaced or flipped, or with its end cut off."""
    begin = draw(st.integers(0, len(content)))
    end = min(len(content), begin + draw(st.integers(0, 40)))
    change = draw(st.sampled_from(["insert", "replace", "double", "truncate", "flip", "append"]))
    if change == "truncate":
        return content[:begin]
    if change == "append":
        return content + draw(st.sampled_from([b"\0", b"\n", b"x", content, *pieces]))
    if change == "flip" and begin < len(content):
        return content[:begin] + bytes([content[begin] ^ (1 << draw(st.integers(0, 7)))]) + content[begin + 1 :]
    piece = content[begin:end] * 2 if change == "double" else draw(st.sampled_from(pieces))
    return content[:begin] + piece + content[begin if change == "insert" else end :]


def encodings(text):
    """A text in other encodings, with a byte-order mark, and as bytes that are no text."""
    return [text.encode("utf-16"), text.encode("utf-32"), b"\xef\xbb\xbf" + text.encode(), b"\xff" + text.encode(),
            text.encode() + b"\xc3", b"", b"\n", b"\0" * 64]  # fmt: skip


# JSON

NUMBERS = ["1e400", "-1e400", "NaN", "Infinity", "-Infinity", "1" * 400, "1" * 5000, "0.1e-9999", "1.", "01", "+1",
           "1_000", "0x10", "1" + "0" * 308 + ".0"]  # fmt: skip


@st.composite
def json_texts(draw, content):
    """A JSON document whose text has what the type system of Python has not."""
    text = json.dumps(content)
    change = draw(st.sampled_from(["number", "twice", "deep", "single quotes", "comment", "comma", "surrogate"]))
    if change == "number":
        marks = [path for path in places(content) if path]
        path = draw(st.sampled_from(marks)) if marks else ()
        return json.dumps(_put(content, path, "@@")).replace('"@@"', draw(st.sampled_from(NUMBERS)), 1).encode()
    if change == "twice":
        found = [path for path in places(content) if path and isinstance(path[-1], str)]
        if found:
            path = draw(st.sampled_from(found))
            odd = json.dumps(draw(st.sampled_from([0, None, "x", [], {}])))
            return json.dumps(_put(content, path, "@@")).replace('"@@"', f"1, {json.dumps(path[-1])}: {odd}").encode()
    if change == "deep":
        depth = draw(st.sampled_from([50, 5000, 200_000]))
        return (b"[" * depth + b"]" * depth) if draw(st.booleans()) else (b'{"a":' * depth)
    if change == "single quotes":
        return text.replace('"', "'").encode()
    if change == "comment":
        return (text + " // the end").encode()
    if change == "surrogate":
        return text.replace('": "', '": "\\ud800', 1).encode()
    return text.replace(", ", ",, ", 1).encode()


def _put(content, path, value):
    if not path:
        return value
    content = copy.deepcopy(content)
    parent = content
    for key in path[:-1]:
        parent = parent[key]
    parent[path[-1]] = value
    return content


def json_files(content: bytes):
    """Damaged JSON documents, as bytes."""
    value = json.loads(content)
    return st.one_of(
        changed(value).map(lambda found: json.dumps(found).encode()),
        changed(value).map(lambda found: json.dumps(found).encode()),
        json_texts(value),
        cut(content, (b",", b"}", b"null", b"\xff", b"\x00", b'"', b"-", b"e")),
        st.sampled_from(encodings(content.decode())),
    )


def jsonl_files(content: bytes):
    """Damaged lines of JSON."""
    lines = content.splitlines(keepends=True)

    @st.composite
    def one_line(draw):
        number = draw(st.integers(0, len(lines) - 1))
        broken = draw(json_files(lines[number].strip()))
        return b"".join([*lines[:number], broken + b"\n", *lines[number + 1 :]])

    @st.composite
    def order(draw):
        return b"".join(draw(st.permutations(lines))[: draw(st.integers(0, len(lines)))])

    return st.one_of(one_line(), one_line(), order(), cut(content, (b"\n", b"{}\n", b"null\n", b"[]\n", b"\x85")))


# YAML

YAML_PIECES = (
    b"\t",
    b"\xff",
    b"\x00",
    b"&a [*a]",
    b"? [1]\n: 2\n",
    b"- ",
    b": ",
    b"{",
    b"]",
    b"<<: *x",
    b"#",
    b"!!set ",
    b"!!python/object/apply:os.system ['true'] ",
    b"!!python/name:os.system ",
    b"!!binary ",
    b"!!bool ",
    b"!!int ",
    b"!!float ",
    b"!!timestamp ",
    b"!!omap ",
    b"!!pairs ",
    b"!!null ",
    b"!!str ",
    b"!own ",
    b"--- ",
    b"...\n",
    b"%YAML 9.9\n",
    b"|\n",
    b">\n",
    b"0o17",
    b"1:30",
    b".inf",
    b".nan",
    b"2019-13-45",
    b"0b2",
    b"1_0",
    b"~",
    b"=",
    b"@",
    b"`",
    b"*unknown",
    b"\xc2\x85",
    b"\xe2\x80\xa8",
)
BOMB = b"a: &a [x, x, x, x, x, x, x, x, x]\n" + b"".join(
    b"%c: &%c [%s]\n" % (ord("a") + n, ord("a") + n, b", ".join([b"*%c" % (ord("a") + n - 1)] * 9))
    for n in range(1, 12)
)
MERGES = b"a: &a {x: 1}\n" + b"".join(
    b"%c: &%c {<<: [%s]}\n" % (ord("a") + n, ord("a") + n, b", ".join([b"*%c" % (ord("a") + n - 1)] * 9))
    for n in range(1, 12)
)


def yaml_files(content: bytes, dump, load):
    """Damaged YAML documents. dump, load: of YAML."""
    documents = yaml_documents(load(content), dump)
    whole = [BOMB, MERGES, BOMB + content, b"[" * 100_000, b"{a: " * 3000, b"- " * 5000, b"&a [*a]", b"&a {b: *a}",
             content + b"\n" + content, content + b"\n---\n" + content, b"!!python/object/apply:os.system ['true']",
             b"[]", b"text", b"3", b"{}", b"!!set {a, b}"]  # fmt: skip
    return st.one_of(
        documents,
        documents,
        cut(content, YAML_PIECES),
        _after_a_colon(content),
        st.sampled_from([*whole, *encodings(content.decode())]),
    )


def yaml_documents(value, dump):
    """YAML documents whose values, keys or lists are others. dump: of YAML."""
    return changed(value, (*ODD, math.nan, math.inf, b"\xff\x00")).map(lambda found: _dumped(found, dump))


def yaml_content(path):
    """A YAML file by PyYAML alone; its two parsers differ in a few tabs."""
    return yaml.load(path.read_text(encoding="utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def _dumped(value, dump):
    try:
        return dump(value).encode()
    except (ValueError, TypeError):  # half a surrogate has no YAML
        return b"{}"


@st.composite
def _after_a_colon(draw, content):
    """A document in which a tag or another word stands where a value begins."""
    parts = content.split(b": ")
    where = draw(st.integers(1, max(1, len(parts) - 1)))
    return b": ".join(parts[:where]) + b": " + draw(st.sampled_from(YAML_PIECES)) + b": ".join(parts[where:])


# CSV

CELLS = ["", " ", "x", "nan", "NaN", "NA", "None", "null", "inf", "-inf", "1e400", "-1", "0", "1e-320", "9" * 400,
         "1" * 5000, "0." + "1" * 3000, "1,5", "1.5.2", "1_000", "0x10", "１", '"', '""', "True", "true", "=1+1", "1e3",
         "+5", " 7 ", "7\t", "\ud800", "Ω", "9223372036854775808", "18446744073709551616", "0.1000000000000000055511",
         "1.00000005960464477539", "1.000000059604644775390625000000001", "3.4028235e38", "3.4028236e38", "1e39",
         "5e-324", "-0", "- 1", "--1", "1e", "e5", ".", "1e5.5", "2019-01-01", "1e99999999999999999999"]  # fmt: skip


@st.composite
def csv_cells(draw, content, separator=","):
    """A table with other cells, columns or rows."""
    rows = list(csv.reader(io.StringIO(content.decode()), delimiter=separator))
    for _ in range(draw(st.integers(1, MOST_CHANGES))):
        change = draw(st.sampled_from(["cell", "cell", "cell", "short", "long", "column", "rename", "swap", "again",
                                       "no row", "blank", "header"]))  # fmt: skip
        row = draw(st.integers(0, len(rows) - 1))
        column = draw(st.integers(0, max(0, len(rows[row]) - 1)))
        if change == "cell" and rows[row]:
            rows[row][column] = draw(st.sampled_from(CELLS))
        elif change == "short":
            del rows[row][column:]
        elif change == "long":
            rows[row] += [draw(st.sampled_from(CELLS))] * draw(st.integers(1, 3))
        elif change == "column":
            rows = [each[:column] + each[column + 1 :] for each in rows]
        elif change == "rename" and rows[0]:
            rows[0][column % len(rows[0])] = draw(st.sampled_from(["", "x", "epoch", "a.1", *rows[0]]))
        elif change == "swap":
            for each in rows:
                if len(each) > 1:
                    each[0], each[-1] = each[-1], each[0]
        elif change == "again":
            rows.insert(row, list(rows[row]))
        elif change == "no row" and len(rows) > 1:
            del rows[row]
        elif change == "blank":
            rows.insert(row, [])
        elif change == "header" and len(rows) > 1:
            del rows[1:]
    return _csv_text(draw, rows, separator)


def _csv_text(draw, rows, separator):
    out = io.StringIO()
    quoting = draw(st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_MINIMAL, csv.QUOTE_ALL]))
    ends = draw(st.sampled_from(["\n", "\n", "\n", "\r\n", "\r", "\n\r"]))
    other = draw(st.sampled_from([separator] * 6 + [";", "\t"]))
    csv.writer(out, delimiter=other, quoting=quoting, lineterminator=ends).writerows(rows)
    return out.getvalue().encode(errors="surrogatepass")


@st.composite
def csv_numbers(draw, content, separator=","):
    """A table in which some numbers are written in another way."""
    lines = [line.split(separator) for line in content.decode().split("\n")]
    for _ in range(draw(st.integers(1, 4))):
        line = draw(st.sampled_from([line for line in lines if len(line) > 1]))
        places = [place for place, cell in enumerate(line) if cell[-1:].isdigit() and cell not in ("0", "1")]
        if places:
            line[draw(st.sampled_from(places))] = draw(st.sampled_from(CELLS) | st.floats().map(repr) | DIGITS)
    ends = draw(st.sampled_from(["\n", "\n", "\r\n"]))
    return ends.join(map(separator.join, lines)).encode(errors="surrogatepass")


DIGITS = st.from_regex(r"[+-]?[0-9]{1,30}([.][0-9]{0,40})?([eE][+-]?[0-9]{1,3})?", fullmatch=True)


def csv_files(content: bytes, separator=","):
    """Damaged tables, as bytes."""
    pieces = (b",", b"\n", b"\r", b"\0", b'"', b'""', b"\xff", b"\t", b";", b" ", b"-", b"e", b".", b"#", b"\x1a")
    return st.one_of(
        csv_cells(content, separator),
        csv_cells(content, separator),
        csv_numbers(content, separator),
        csv_numbers(content, separator),
        cut(content, pieces),
        st.sampled_from(encodings(content.decode())),
    )


# gz


def gz_files(content: bytes, inside=None):
    """Damaged compressed files. inside: a strategy for what is compressed."""
    plain = gzip.decompress(content)
    half = len(plain) // 2
    whole = [content[:-1], content[:-8], content[:-4] + b"\0\0\0\0", content + b"garbage", content + content, b"",
             gzip.compress(plain[:half]) + gzip.compress(plain[half:]), content[:10], plain, content[:-8] + b"\xff" * 8,
             content + b"\0" * 100, b"\x1f\x8b", gzip.compress(b""), gzip.compress(b"\0" * 10**7)]  # fmt: skip
    strategies = [st.sampled_from(whole), cut(content, (b"\0", b"\xff", b"\x1f\x8b"))]
    return st.one_of(*strategies, *([inside(plain).map(gzip.compress)] * 2 if inside else []))


# TFRecord


def records_of(content: bytes):
    """The records of a TFRecord file, by its framing."""
    found, at = [], 0
    while at + 12 <= len(content):
        (length,) = struct.unpack("<Q", content[at : at + 8])
        found.append(content[at + 12 : at + 12 + length])
        at += 12 + length + 4
    return found


def tfrecord_files(content: bytes, write, records):
    """Damaged TFRecord files. write: from records to the bytes of a file. records: whole records that are others."""
    own = records_of(content)
    frames = [8 + 4 + len(each) + 4 for each in own]

    @st.composite
    def framing(draw):
        begin = sum(frames[: draw(st.integers(0, len(frames) - 1))])
        at = begin + draw(st.sampled_from([0, 1, 7, 8, 11, 12, 13]))
        return content[:at] + bytes([content[at] ^ 1 << draw(st.integers(0, 7))]) + content[at + 1 :]

    @st.composite
    def length(draw):
        at = sum(frames[: draw(st.integers(0, len(frames) - 1))])
        told = draw(st.sampled_from([0, 1, 2**31, 2**40, 2**63, 2**64 - 1]))
        return content[:at] + struct.pack("<Q", told) + content[at + 8 :]

    @st.composite
    def others(draw):
        changed, number = list(own), draw(st.integers(0, len(own) - 1))
        new = draw(st.sampled_from([*records, own[number][:-1], own[number] + b"\0", b"", b"x" * 40, None, own[0]]))
        if new is None:
            del changed[number]
        else:
            changed[number] = new
        return write(changed)

    return st.one_of(others(), others(), framing(), length(), cut(content, (b"\0", b"\xff")))

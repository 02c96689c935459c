"""Strategies that damage files: each takes a valid file's content and gives broken ones.

Most of what they give must be refused; some is still valid, and must then be read as it stands.
"""

import copy
import gzip
import json
import math
import re

import hypothesis.strategies as st
import yaml

ODD = [None, True, False, "", " ", "x" * 3000, "../../etc/passwd", "a; rm -rf /", "$(id)", "Ω\n\t", "none", "nt3", -1,
       0, 1, 7, 2.0, 2.5, 10**9, 10**30, -(10**18), 1e-320, 1e300, [], [[]], [1, 1], [None], {}, {"a": 1}, {"": []},
       [1, "two", 3.0], {"benchmark": "nt3"}, "NaN", "1e3", "0x10", "yes", "1,5", "\ud800", "\0"]  # fmt: skip
NEW_KEYS = ["unknown", "base", "path", "trace", "queue", "", "schema_version", "__class__", "status"]
MOST_CHANGES = 3
BYTES = (b"", b"\0", b"\xff", b"\n", b"x", b"\x1f\x8b", b"PK\x05\x06", b"\xff\xd9")

# Pieces of a format that others may stand for: what divides a text into them, and words that replace one.
JSON_PIECES = (b"1e400", b"NaN", b"-Infinity", b"1" * 5000, b"0.1e-9999", b"1.", b"01", b"1_000", b"null", b"{}", b"[]",
               b"[" * 100_000, b'{"a":' * 5000, b'"\\ud800"', b" // the end", b"'", b'"a":1,"a":2',
               b"\x85")  # fmt: skip
YAML_PIECES = (b"\t", b"\xff", b"\x00", b"&a [*a]", b"? [1]\n: 2\n", b"- ", b": ", b"{", b"]", b"<<: *x", b"#",
               b"!!set ", b"!!python/object/apply:os.system ['true'] ", b"!!python/name:os.system ", b"!!binary ",
               b"!!bool ", b"!!int ", b"!!float ", b"!!timestamp ", b"!!omap ", b"!!pairs ", b"!!null ", b"!!str ",
               b"!own ", b"--- ", b"...\n", b"%YAML 9.9\n", b"|\n", b">\n", b"0o17", b"1:30", b".inf", b".nan",
               b"2019-13-45", b"0b2", b"1_0", b"~", b"=", b"@", b"`", b"*unknown", b"\xc2\x85",
               b"\xe2\x80\xa8")  # fmt: skip
CELLS = [each.encode(errors="surrogatepass") for each in (
    "", " ", "x", "nan", "NA", "None", "inf", "-inf", "1e400", "-1", "0", "1e-320", "9" * 400, "1" * 5000,
    "0." + "1" * 3000, "1,5", "1.5.2", "1_000", "0x10", "１", '"', '""', "True", "=1+1", "+5", " 7 ", "7\t", "\ud800",
    "Ω", "9223372036854775808", "0.1000000000000000055511", "1.000000059604644775390625000000001", "3.4028236e38",
    "5e-324", "-0", "- 1", "1e", "e5", ".", "1e5.5", "2019-01-01", "1e99999999999999999999", "\0", ";",
    "#")]  # fmt: skip


def _nested(first, key):
    """YAML whose aliases stand for each other, nine times in each of twelve levels."""
    levels = [b"%c: &%c %s\n" % (97 + n, 97 + n, key % b", ".join([b"*%c" % (96 + n)] * 9)) for n in range(1, 12)]
    return b"a: &a " + first + b"\n" + b"".join(levels)


BOMB = _nested(b"[x, x, x, x, x, x, x, x, x]", b"[%s]")
MERGES = _nested(b"{x: 1}", b"{<<: [%s]}")


def places(value, path=()):
    """Every path in a nested value, the value's own first."""
    yield path
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield from places(child, (*path, key))


@st.composite
def changed(draw, content, odd=tuple(ODD)):
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
            parent[draw(st.sampled_from(NEW_KEYS))] = copy.deepcopy(draw(st.sampled_from(odd)))
        else:
            parent[last] = copy.deepcopy(draw(st.sampled_from(odd)))
    return content


@st.composite
def cut(draw, content, words=BYTES):
    """A file with a few bytes taken out, doubled, replaced or flipped, or with its end cut off."""
    begin = draw(st.integers(0, len(content)))
    end = min(len(content), begin + draw(st.integers(0, 40)))
    change = draw(st.sampled_from(["insert", "replace", "double", "truncate", "flip", "append"]))
    if change == "truncate":
        return content[:begin]
    if change == "append":
        return content + draw(st.sampled_from([content, *words]))
    if change == "flip" and begin < len(content):
        return content[:begin] + bytes([content[begin] ^ (1 << draw(st.integers(0, 7)))]) + content[begin + 1 :]
    piece = content[begin:end] * 2 if change == "double" else draw(st.sampled_from(words))
    return content[:begin] + piece + content[begin if change == "insert" else end :]


@st.composite
def pieces(draw, content, border, words):
    """A text of which one to three pieces are other words, missing, doubled or exchanged. border: between pieces."""
    parts = re.split(b"(%s)" % border, content)
    for _ in range(draw(st.integers(1, MOST_CHANGES))):
        here, there = (draw(st.integers(0, len(parts) - 1)) for _ in range(2))
        change = draw(st.sampled_from(["replace", "replace", "drop", "double", "exchange"]))
        if change == "exchange":
            parts[here], parts[there] = parts[there], parts[here]
        else:
            parts[here] = {"drop": b"", "double": parts[here] * 2}.get(change) or draw(st.sampled_from(words))
    return b"".join(parts)


def encodings(content):
    """A text in other encodings, with a byte-order mark, and as bytes that are no text."""
    text = content.decode()
    return st.sampled_from([text.encode("utf-16"), text.encode("utf-32"), b"\xef\xbb\xbf" + content, b"\xff" + content,
                            content + b"\xc3", b"", b"\n", b"\0" * 64, content.replace(b"\n", b"\r\n"),
                            content.replace(b"\n", b"\r")])  # fmt: skip


def json_files(content: bytes):
    """Damaged JSON documents."""
    documents = changed(json.loads(content)).map(lambda value: json.dumps(value).encode())
    others = pieces(content, rb'[][{},:]|"[^"]*"', JSON_PIECES)
    return st.one_of(*[documents] * 4, others, cut(content), encodings(content))


def jsonl_files(content: bytes):
    """Damaged lines of JSON."""
    lines = pieces(content, rb"\n", (b"{}", b"null", b"[]", b"\x85"))
    return st.one_of(lines, pieces(content, rb'[][{},:]|"[^"]*"', JSON_PIECES), cut(content))


def yaml_documents(value, dump):
    """YAML documents whose values, keys or lists are others. dump: of YAML."""

    def dump_or_empty(found):
        try:
            return dump(found).encode()
        except (ValueError, TypeError):  # half a surrogate has no YAML
            return b"{}"

    return changed(value, (*ODD, math.nan, math.inf, b"\xff\x00")).map(dump_or_empty)


def yaml_files(content: bytes, dump):
    """Damaged YAML documents. dump: of YAML."""
    whole = [BOMB, MERGES, BOMB + content, b"[" * 100_000, b"{a: " * 3000, b"- " * 5000, b"&a [*a]", b"&a {b: *a}",
             content + b"\n" + content, content + b"\n---\n" + content, b"[]", b"text", b"3", b"{}",
             b"!!set {a, b}"]  # fmt: skip
    documents = yaml_documents(yaml.safe_load(content), dump)
    others = pieces(content, rb": |\n *(?:- )?", YAML_PIECES)
    return st.one_of(documents, documents, others, cut(content), st.sampled_from(whole), encodings(content))


def csv_files(content: bytes, separator=","):
    """Damaged tables."""
    cells = pieces(content, b"[%s\n]" % separator.encode(), CELLS)
    rows = pieces(content, b"\n", (b"", b"1,2", b"\r"))
    numbers = st.floats().map(repr) | st.from_regex(r"[+-]?[0-9]{1,30}([.][0-9]{0,40})?([eE][+-]?[0-9]{1,3})?",
                                                    fullmatch=True)  # fmt: skip
    other_numbers = numbers.map(lambda number: re.sub(rb"[0-9.]{2,}", number.encode(), content, count=1))
    return st.one_of(cells, cells, rows, other_numbers, cut(content), encodings(content))


def gz_files(content: bytes, inside=None):
    """Damaged compressed files. inside: a strategy for what is compressed."""
    plain = gzip.decompress(content)
    half = len(plain) // 2
    whole = [content[:-1], content[:-8], content[:-4] + b"\0\0\0\0", content + b"garbage", content + content, b"",
             gzip.compress(plain[:half]) + gzip.compress(plain[half:]), content[:10], plain, content[:-8] + b"\xff" * 8,
             content + b"\0" * 100, b"\x1f\x8b", gzip.compress(b""), gzip.compress(b"\0" * 10**7)]  # fmt: skip
    return st.one_of(st.sampled_from(whole), cut(content), *([inside(plain).map(gzip.compress)] * 2 if inside else []))


def yaml_content(path):
    """A YAML file by PyYAML alone; its two parsers differ in a few tabs."""
    return yaml.load(path.read_text(encoding="utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))

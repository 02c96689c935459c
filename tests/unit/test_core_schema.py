"""YAML is read by the core schema of YAML 1.2, or refused; what we write is read back as it is."""

import json
import math
import re

import hypothesis.strategies as st
import pytest
import yaml
from hypothesis import given, settings
from snakemake.cli import parse_config

from study.core import configuration, core_schema, validation
from study.core.errors import StudyError
from study.core.files import parse_json, read_json, write_json

# The table of https://yaml.org/spec/1.2.2/#1032-tag-resolution, written down a second time.
SPECIFIED = [
    (r"null|Null|NULL|~", lambda text: None),
    (r"true|True|TRUE|false|False|FALSE", lambda text: text.lower() == "true"),
    (r"[-+]?[0-9]+", int),
    (r"0o[0-7]+", lambda text: int(text[2:], 8)),
    (r"0x[0-9a-fA-F]+", lambda text: int(text[2:], 16)),
    (r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", float),
    (r"[-+]?(\.inf|\.Inf|\.INF)", lambda text: -math.inf if text[0] == "-" else math.inf),
    (r"\.nan|\.NaN|\.NAN", lambda text: math.nan),
]
NUMBERS = st.text("0123456789.eExXoObB_+-:afT Zz", min_size=1, max_size=12)
WORDS = st.sampled_from(
    ["yes", "no", "on", "off", "true", "false", "null", "~", ".inf", ".nan", "y", "n", "inf", "nan", "2024-01-01",
     "1:30", "010", "08", "1e3", "0o17"]
)  # fmt: skip
PIECES = st.lists(st.one_of(NUMBERS, WORDS), min_size=1, max_size=2).map("".join).map(str.strip).filter(bool)
ANY_TEXT = st.one_of(PIECES, st.text(st.characters(exclude_categories=["Cs"]), max_size=20))


def specified(text):
    """The value of a plain scalar by YAML 1.2's core schema."""
    return next((value(text) for pattern, value in SPECIFIED if re.fullmatch(pattern, text)), text)


def same(one, other):
    return type(one) is type(other) and (one == other or (one != one and other != other))


def is_plain(text):
    """Whether YAML has it as one plain scalar, which the whole line is."""
    try:
        (node,) = yaml.compose(f"- {text}\n").value
    except (yaml.YAMLError, AttributeError, ValueError):
        return False
    return isinstance(node, yaml.ScalarNode) and node.style is None and node.value == text


@pytest.mark.slow
@settings(max_examples=1000, deadline=None, database=None, derandomize=True)
@given(text=PIECES)
def test_every_scalar_is_read_by_the_core_schema_or_refused(tmp_path_factory, text):
    if not is_plain(text):
        return
    file = tmp_path_factory.getbasetemp() / "scalar.yaml"
    file.write_text(f"key: {text}\n", encoding="utf-8")
    try:
        found = validation.read_yaml(file)["key"]
    except StudyError as error:
        assert "line 1: key: " in str(error)
        return
    assert same(found, specified(text)), (found, specified(text))


@pytest.mark.slow
@settings(max_examples=1000, deadline=None, database=None, derandomize=True)
@given(text=PIECES)
def test_what_yaml_1_1_has_as_another_value_is_refused(tmp_path_factory, text):
    """But for texts of 1.1 that are numbers in 1.2, such as 1e-3."""
    if not is_plain(text):
        return
    file = tmp_path_factory.getbasetemp() / "once.yaml"
    file.write_text(f"key: {text}\n", encoding="utf-8")
    try:
        once = yaml.safe_load(file.read_text())["key"]
    except (yaml.YAMLError, ValueError, OverflowError):
        return
    try:
        found = validation.read_yaml(file)["key"]
    except StudyError:
        return
    assert same(found, once) or (isinstance(once, str) and isinstance(found, int | float))


SCALARS = st.one_of(
    ANY_TEXT, st.none(), st.booleans(), st.integers(-(10**30), 10**30),
    st.floats(allow_nan=False, allow_infinity=False),
)  # fmt: skip
CONTENTS = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY_TEXT, inner, max_size=3), max_leaves=8
)


@pytest.mark.slow
@settings(max_examples=600, deadline=None, database=None, derandomize=True)
@given(content=st.dictionaries(ANY_TEXT, CONTENTS, min_size=1, max_size=4), unicode=st.booleans())
def test_what_is_written_as_yaml_is_read_back(tmp_path_factory, content, unicode):
    file = tmp_path_factory.getbasetemp() / "written.yaml"
    try:
        file.write_text(core_schema.dump_yaml(content, allow_unicode=unicode), encoding="utf-8")
        found = validation.read_yaml(file)
    except StudyError as error:
        assert "control" in str(error) or "character" in str(error)  # YAML has no way to write some
        return
    assert repr(found) == repr(content)


@pytest.mark.slow
@settings(max_examples=300, deadline=None, database=None, derandomize=True)
@given(content=CONTENTS)
def test_what_is_written_as_json_is_read_back(tmp_path_factory, content):
    file = tmp_path_factory.getbasetemp() / "written.json"
    write_json(file, content)
    assert repr(read_json(file)) == repr(content)


@pytest.mark.slow
@settings(max_examples=300, deadline=None, database=None, derandomize=True)
@given(text=PIECES)
def test_values_of_the_command_line_are_those_of_a_file(tmp_path_factory, text):
    """Texts are taken as they were typed, whatever Snakemake makes of them; others as in a file."""
    made = parse_config([f"account={text}", f"keep_versions={text}"])
    typed = [f"account={text}", f"keep_versions={text}"]
    found = configuration.restore_typed_values({"account": made["account"]}, [], typed[:1], made)
    assert found == {"account": text.strip("'\"")}
    file = tmp_path_factory.getbasetemp() / "config.yaml"
    file.write_text(f"keep_versions: {text}\n", encoding="utf-8")
    if not is_plain(text):
        return
    outcomes = []
    for read in (
        lambda: configuration.restore_typed_values({"keep_versions": made["keep_versions"]}, [], typed[1:], made)[
            "keep_versions"
        ],
        lambda: validation.read_yaml(file)["keep_versions"],
    ):
        try:
            outcomes.append(repr(read()))
        except StudyError as error:
            outcomes.append(str(error).partition("keep_versions: ")[2])
    assert outcomes[0] == outcomes[1]


REFUSED = {
    "010": "key: 010 is 8 in YAML 1.1 and 10 in YAML 1.2; write 10 or 8 or '010' in quotes for the text",
    "08": "08 is a text in YAML 1.1 and 8 in YAML 1.2; write 8 or '08' in quotes",
    "-010": "-010 is -8 in YAML 1.1 and -10 in",
    "1_000": "1_000 is 1000 in YAML 1.1 and a text in YAML 1.2; write 1000 or '1_000' in quotes",
    "2024_11": "2024_11 is 202411 in YAML 1.1",
    "1:30": "1:30 is 90 in YAML 1.1 and a text in YAML 1.2; write 90 or '1:30' in quotes",
    "12:30:45": "12:30:45 is 45045 in YAML 1.1",
    "1:30.5": "1:30.5 is 90.5 in YAML 1.1",
    "1_0.5": "1_0.5 is 10.5 in YAML 1.1",
    "0b101": "0b101 is 5 in YAML 1.1",
    "-0x1F": "-0x1F is -31 in YAML 1.1",
    "yes": "yes is true in YAML 1.1 and a text in YAML 1.2; write true or 'yes' in quotes",
    "Off": "Off is false in YAML 1.1",
    "2024-01-01": "2024-01-01 is a date in YAML 1.1 and a text in YAML 1.2; write '2024-01-01' in quotes",
    "2024-01-01 10:00:00": "is a date in YAML 1.1",
    "1e400": "1e400 is too large or too small",
    "-1e-400": "-1e-400 is too large or too small",
    "!!int 010": "010 is 8 in YAML 1.1 and 10 in",
    "!!bool yes": "yes is true in YAML 1.1",
    "!!timestamp 2024-01-01": "the tag !!timestamp is not of YAML's core schema",
    "!!set {a}": "the tag !!set is not of YAML's core schema",
    "!!binary aGk=": "the tag !!binary is not of YAML's core schema",
    "!!float x": "'x' does not fit its tag !!float",
}
READ = {"1e-3": 0.001, "1E3": 1000.0, "1.0e3": 1000.0, "-.5": -0.5, ".5": 0.5, "1.": 1.0, "+1": 1, "0o10": 8,
        "0x1F": 31,
        "0": 0, "-0": 0, "0.10": 0.1, "010.5": 10.5, "~": None, "null": None, "": None, "TRUE": True, "'010'": "010",
        "!!str 010": "010", '!!int "10"': 10, "!!float 1": 1.0, "y": "y", "n": "n", "=": "=", "nan": "nan",
        "inf": "inf",
        "1,000": "1,000", "0:30": "0:30", "2024-1-1": "2024-1-1", "99999999999999999999": 99999999999999999999,
        "tRUE": "tRUE", "1.2.3": "1.2.3"}  # fmt: skip


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_ambiguous_is_refused_with_the_remedy(tmp_path, text):
    (tmp_path / "a.yaml").write_text(f"key: {text}\n")
    with pytest.raises(StudyError, match=re.escape(REFUSED[text])):
        validation.read_yaml(tmp_path / "a.yaml")
    (tmp_path / "a.yaml").write_text(f"# \nlist:\n- of: [1, {text}]\n")
    with pytest.raises(StudyError, match=r"a\.yaml: line 3: list\[0\]\.of\[1\]: "):
        validation.read_yaml(tmp_path / "a.yaml")


@pytest.mark.parametrize("text", READ)
def test_what_is_read(tmp_path, text):
    (tmp_path / "a.yaml").write_text(f"key: {text}\n")
    assert same(validation.read_yaml(tmp_path / "a.yaml")["key"], READ[text])


@pytest.mark.parametrize("key", ["010", "1.0", "yes", "null", "~", "2024-01-01", "1e3", "0o7", "true", "1_0", "08"])
def test_keys_are_texts(tmp_path, key):
    (tmp_path / "a.yaml").write_text(f"{key}: 1\n")
    with pytest.raises(StudyError, match=re.escape(f"line 1: the key {key} is not a text; put it in quotes")):
        validation.read_yaml(tmp_path / "a.yaml")
    (tmp_path / "a.yaml").write_text(f"'{key}': 1\n")
    assert validation.read_yaml(tmp_path / "a.yaml") == {key: 1}


def test_large_files_are_read_alike(tmp_path):
    """Which PyYAML's own parser reads, not the one in C."""
    filler = "# " + "x" * validation.SURELY_SHALLOW + "\n"
    (tmp_path / "a.yaml").write_text(filler + "key: 010\n")
    with pytest.raises(StudyError, match="line 2: key: 010 is 8 in YAML 1.1"):
        validation.read_yaml(tmp_path / "a.yaml")
    (tmp_path / "a.yaml").write_text(filler + "a: 1e-3\nb: 0o10\nc: -.5\n")
    assert validation.read_yaml(tmp_path / "a.yaml") == {"a": 0.001, "b": 8, "c": -0.5}


def test_a_merge_key_keeps_its_meaning(tmp_path):
    (tmp_path / "a.yaml").write_text("a: &a {x: 1, y: 2}\nb: {<<: *a, y: 3}\n'<<': 4\n")
    assert validation.read_yaml(tmp_path / "a.yaml") == {"a": {"x": 1, "y": 2}, "b": {"x": 1, "y": 3}, "<<": 4}
    (tmp_path / "a.yaml").write_text("a: &a {x: 010}\nb: {<<: *a}\n")
    with pytest.raises(StudyError, match="line 1: a.x: 010 is 8"):
        validation.read_yaml(tmp_path / "a.yaml")


@pytest.mark.parametrize(
    "text", ["NaN", "Infinity", "1e400", "-1e400", "1e-400", '{"a": 1, "a": 2}', "01", "1_0", "+1"]
)
def test_json_is_refused_where_its_value_would_change(text):
    with pytest.raises(ValueError):
        parse_json(text)


@pytest.mark.parametrize("text", ["0", "-0.0", "0e5", "1e-300", "5e-324", "1.5", "12345678901234567890"])
def test_other_numbers_of_json_are_read(text):
    assert same(parse_json(text), json.loads(text))

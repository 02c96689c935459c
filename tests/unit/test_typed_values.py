"""Values of --config mean what was typed, those of files what YAML's core schema says, numbers are plain ones."""

import argparse
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as some
from snakemake.cli import parse_config
from tracked import ours

from study.core import configuration, number_types
from study.core.errors import StudyError
from study.core.paths import SCRIPTS

GIVEN = {"study": "laptop", "machine": "local", "data_dir": "data"}


def meant(*typed, files=()):
    """The configuration, as Snakemake makes it of the command line and this project corrects it."""
    made = parse_config(typed)
    return configuration.restore_typed_values({**GIVEN, **made}, files, typed, made)


@pytest.mark.parametrize(
    ("typed", "key", "value"),
    [
        *((f"study={text}", "study", text) for text in ("2024_11", "007", "1e3", "true", "nan")),
        *((f"data_dir={text}", "data_dir", text) for text in ("0x10", "12345", "2024-11-01", "a=b", "[1]")),
        ("study='2024_11'", "study", "2024_11"),
        *((f"keep_versions={value}", "keep_versions", value == "True") for value in ("True", "false")),
        ("repeat_disturbed=0", "repeat_disturbed", 0),
    ],
)
def test_a_text_is_taken_as_it_was_typed(typed, key, value):
    assert meant(typed) == {**GIVEN, key: value}


@given(some.from_regex(r"[A-Za-z0-9_.-]+", fullmatch=True))
@pytest.mark.slow
def test_any_name_is_taken_as_it_was_typed(name):
    assert meant(f"study={name}")["study"] == name


def test_other_values_are_read_as_in_files():
    with pytest.raises(StudyError, match="^--config: keep_versions: yes is true in YAML 1.1 and a text in YAML 1.2"):
        meant("keep_versions=yes")
    with pytest.raises(StudyError, match="^--config: keep_versions: expected one value"):
        meant("keep_versions=[true]")


def test_a_file_is_read_by_the_core_schema(tmp_path):
    """Snakemake reads 1e3 as a text; in all other files of a study it is a number, so it is refused as a name."""
    file, over = tmp_path / "config.yaml", tmp_path / "over.yaml"
    file.write_text("study: 1e3\nmachine: '007'\n")
    over.write_text("machine: theta\n")
    read = configuration.restore_typed_values({**GIVEN, "study": "1e3", "machine": "theta"}, [file, over], [], {})
    assert (read["study"], read["machine"], read["data_dir"]) == (1000.0, "theta", "data")
    file.write_text("study: 2024_11\n")
    with pytest.raises(StudyError, match="line 1: study: 2024_11 is 202411 in YAML 1.1 .* '2024_11' in quotes"):
        configuration.restore_typed_values(GIVEN, [file], [], {})


def test_what_a_workflow_around_this_one_sets_stays():
    """It may give its module another study than its own."""
    made = parse_config(["study=007"])
    assert configuration.restore_typed_values({**GIVEN, "study": "other"}, [], ["study=007"], made)["study"] == "other"


@pytest.mark.parametrize("text", ["1_000", "\u0661", " 5", "5 ", "+5", "-1", "1.0", "0x10", "1e3", "", "five", "nan"])
def test_a_whole_number_is_plain(text):
    for kind in (number_types.parse_whole, number_types.parse_count):
        with pytest.raises(argparse.ArgumentTypeError, match="must be an integer, at least"):
            kind(text)


def test_plain_numbers():
    assert [number_types.parse_seconds(text) for text in ("5", "0.5", ".5", "5.", "1e-3", "1E+3")] == [
        5,
        0.5,
        0.5,
        5,
        1e-3,
        1e3,
    ]
    assert (number_types.parse_whole("0"), number_types.parse_count("12")) == (0, 12)


def test_no_script_takes_python_s_own_numbers():
    texts = {path.name: path.read_text() for path in ours(SCRIPTS.glob("*.py"))}
    wrong = [name for name, text in texts.items() if "type=int" in text or "type=float" in text]
    assert wrong == []


def test_a_script_says_it_in_one_line():
    line = [
        sys.executable,
        SCRIPTS / "cluster.py",
        "submit",
        "--machine",
        "summit",
        "--nodes",
        "1_0",
        "--minutes",
        "5",
        "x",
    ]
    done = subprocess.run(line, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.endswith("error: Invalid value for '--nodes': '1_0' must be an integer, at least 1\n")

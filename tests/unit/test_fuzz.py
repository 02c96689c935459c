"""Files that are damaged by their structure: a share of ``make fuzz``, and what it once found.

Each case ends in one line of error that names the file, or in what another reader finds in it.
"""

import gzip
import io
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import damage
import numpy as np
import pandas as pd
import pytest
import readers

from study.compare import first_verdicts, likeness
from study.core import csv_files, validation
from study.core.errors import StudyError
from study.core.files import parse_json
from study.data import feature_scaling, loaders, matrix_file, source_state
from study.instruments import phases, profiler
from study.instruments.timeline import summarize_timeline
from study.machines import machine_lock

BATCH = Path(readers.__file__).with_name("batch.py")
CASES = 6  # of each reader
READERS = readers.import_all()
FOLDERS = [str(BATCH.parents[1] / name) for name in ("fuzz", "unit", "workflow")]


def npy_bytes():
    """A matrix of two rows and three columns as a ``.npy`` file."""
    content = io.BytesIO()
    np.save(content, np.zeros((2, 3), np.float32))
    return content.getvalue()


def fuzzed(names, folder):
    """What a process that damages the files of these readers says of each."""
    line = [sys.executable, BATCH, *names, "--cases", str(CASES), "--seed", "20", "--folder", folder]
    done = subprocess.run(
        line, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(FOLDERS)}
    )
    last = (folder / "reader").read_text() if (folder / "reader").exists() else "none"
    assert done.returncode == 0, f"in {last}: exit code {done.returncode}: {done.stderr[-3000:]}"
    return [json.loads(text) for text in done.stdout.splitlines()]


def is_right(found, names):
    assert [each["reader"] for each in found] == names
    wrong = [f"{each['reader']}: {one['what']}" for each in found for one in each["wrong"]]
    assert not wrong, "\n".join(wrong)
    assert sum(each["refused"] for each in found) > CASES * len(names) / 5, "too few were broken to mean anything"


@pytest.mark.slow
def test_damaged_files_are_refused_or_read_as_they_stand(tmp_path):
    names = [name for name, entry in READERS.items() if not entry.is_slow]
    is_right(fuzzed(names, tmp_path), names)


@pytest.mark.slow
def test_damaged_images_are_refused_or_read_as_they_stand(tmp_path):
    names = [name for name, entry in READERS.items() if entry.is_slow]
    is_right(fuzzed(names, tmp_path), names)


# What fuzzing has found. Each was a traceback, an endless loop or another number before.


@pytest.mark.parametrize(
    "text", ['{"a": 1, "a": 2}', "1e400", "-1e400", "9" * 400, '["\\ud800"]', "NaN", "[" * 100_000]
)
def test_json_that_readers_understand_differently_is_refused(text):
    with pytest.raises((ValueError, RecursionError)):
        parse_json(text)


@pytest.mark.parametrize(
    "text",
    [
        damage.BOMB,
        damage.MERGES,
        b"a: !!int ''",
        b"a: !!bool maybe",
        b"a: !!timestamp x",
        b"a: &a [*a]",
        b"&a {b: *a}",
        b"a: !!python/object/apply:os.system ['true']",
    ],
)
def test_yaml_that_explodes_or_lies_about_its_types_is_refused(tmp_path, text):
    (tmp_path / "fault.yaml").write_bytes(text)
    with pytest.raises(StudyError, match="fault.yaml"):
        validation.read_yaml(tmp_path / "fault.yaml")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a,b\n1\n", "line 2: 1 values"),
        ("a,b\n1,2,3\n", "line 2: 3 values"),
        ("a,a\n1,2\n", "two columns 'a'"),
        ("a,b\n1,x\n", "line 2, column 'b': 'x'"),
        ("a,b\n1,NA\n", "'NA'"),
        ("a,b\n1,True\n", "'True'"),
        ("", "is empty"),
        ("a,b\n1,inf\n", "'inf'"),
        ("a,b\n1,2\0\n", "line 2: there is a zero byte"),
        ('a,b\n1,"2\n', "line 2"),
        ("a,b\n\n1,2\n", "line 2: 0 values"),
        ("\na,b\n1,2\n", "line 1: the line is empty"),
        ("a\n1\n", "no column 'b'"),
        ("\ufeffa,b\n1,2\n", "no plain name"),
        (f"a,b\n1,{'9' * 400}\n", "is not a finite number"),
    ],
)
def test_tables_that_pandas_would_mend_are_refused(tmp_path, text, told):
    (tmp_path / "fault.csv").write_text(text)
    with pytest.raises(StudyError, match="fault.csv") as error:
        csv_files.read_csv(tmp_path / "fault.csv", {"b": csv_files.FINITE})
    assert told in str(error.value)


def test_numbers_of_tables_are_the_nearest_ones(tmp_path):
    """pandas' own parser is one unit in the last place off here."""
    numbers = [0.1 + 0.2, 1 / 3, 1e22, 5e-324, 123456789.12345679, 2.2250738585072014e-308, 1.7976931348623157e308]
    (tmp_path / "x.csv").write_text("b\n" + "".join(f"{number!r}\n" for number in numbers))
    assert csv_files.read_csv(tmp_path / "x.csv", {"b": csv_files.FINITE})["b"].tolist() == numbers


@pytest.mark.parametrize(
    ("name", "ts"),
    [*(('"ALLREDUCE"', ts) for ts in ("Infinity", "1e400", "NaN", "-5", '"inf"', "1e300")),
     *((name, "2") for name in ('["ALLREDUCE"]', "{}", "3", "null"))],
)  # fmt: skip
def test_times_that_no_run_has_and_names_that_are_no_text_are_dropped_from_the_timeline(tmp_path, name, ts):
    events = f'[{{"ph": "B", "name": {name}, "pid": 1, "ts": 1}}, {{"ph": "E", "pid": 1, "ts": {ts}}}]'
    (tmp_path / "timeline.json").write_text(events)
    found = summarize_timeline(tmp_path / "timeline.json").summary
    events_lost = 1 if name == '"ALLREDUCE"' else 2  # with an odd name the end is of nothing, too
    assert found["dropped_events"] >= events_lost and found["allreduce"]["operation_s"] == 0


def test_an_empty_archive_is_no_whole_timeline(tmp_path):
    contents = (b"", *map(gzip.compress, (b"", b"\0" * 10**7, b"[" * 5000 + b"]" * 5000)))
    for number, content in enumerate(contents):
        (tmp_path / f"{number}.json.gz").write_bytes(content)
        assert summarize_timeline(tmp_path / f"{number}.json.gz").summary["lost_bytes"] > 0, number


@pytest.mark.parametrize("line", [b"{}", b"null", b"12", b'{"phase": 1}', b"\xff", b"[" * 100_000])
def test_a_line_of_a_run_s_phases_that_is_no_edge_is_refused(tmp_path, line):
    (tmp_path / "phases.jsonl").write_bytes(line + b"\n")
    with pytest.raises(StudyError, match="phases.jsonl: line 1"):
        phases.read_edges(tmp_path / "phases.jsonl")
    assert phases.read_edges(tmp_path / "phases.jsonl", is_merged=False) == []


@pytest.mark.parametrize("content", [b"", b"\xff", b"s\x00\x00\x00\x00", b"{0", b"i\x01\x00\x00\x00"])
def test_a_damaged_profile_is_refused(tmp_path, content):
    (tmp_path / "profile.pstats").write_bytes(content)
    with pytest.raises(StudyError, match="profile.pstats"):
        profiler.summarize(tmp_path / "profile.pstats")


def test_a_header_that_promises_terabytes_takes_no_memory(tmp_path):
    whole = npy_bytes()
    promise = whole.replace(b"(2, 3), }            ", b"(200000, 10000000), }")
    assert len(promise) == len(whole) and promise != whole
    (tmp_path / "x.npy").write_bytes(promise)
    with pytest.raises(StudyError, match="x.npy: is no whole converted matrix"):
        matrix_file.read_matrix(tmp_path / "x.npy")


@pytest.mark.parametrize("begin", [b"[{", b"{{", b"{''"])
def test_a_header_whose_brackets_or_quotes_do_not_close_is_refused(tmp_path, begin):
    more = len(begin) - 1
    whole = npy_bytes()
    broken = whole.replace(b"{", begin).replace(b" " * more + b"\n", b"\n")
    assert len(broken) == len(whole)
    (tmp_path / "x.npy").write_bytes(broken)
    with pytest.raises(StudyError, match="x.npy: is no whole converted matrix"):
        matrix_file.read_matrix(tmp_path / "x.npy")
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("a.npy", broken)
    with pytest.raises(StudyError, match="x.npz: is no whole archive of arrays"):
        matrix_file.read_arrays(tmp_path / "x.npz")


def test_scalers_of_other_lengths_or_types_are_refused(tmp_path):
    for name, array in (
        ("longer", np.ones(4, np.float32)),
        ("double", np.ones(3)),
        ("square", np.ones((3, 1), np.float32)),
    ):
        path = tmp_path / f"{name}.npz"
        np.savez(path, **{"train.divide": np.ones(3, np.float32), "train.subtract": array})
        with pytest.raises(StudyError, match=f"{name}.npz: has no scaler of train"):
            feature_scaling.load_scaler(path, "train")


@pytest.mark.parametrize("content", ["", "[]", "null", '{"n": "abc"}', '{"n": [1]}', '{"n": [], "n": []}'])
def test_damaged_first_verdicts_are_refused(tmp_path, content):
    """Otherwise a verdict of more runs would count as the first one."""
    (tmp_path / first_verdicts.FOLDER).mkdir()
    (tmp_path / first_verdicts.FOLDER / "findings.json").write_text(content)
    with pytest.raises(StudyError, match="findings.json"):
        first_verdicts.read(tmp_path, "findings")


@pytest.mark.parametrize("text", ["{", "[]", '{"NCCL_DEBUG": 1}', '{"a": ["b"]}', "[" * 100_000, 7.0])
def test_damaged_steering_is_refused(text):
    runs = pd.DataFrame({"steering": ["{}", text]})
    with pytest.raises(StudyError, match="column steering"):
        likeness._differs_in_steering(runs)


def test_a_lock_whose_holder_never_ends_has_an_unknown_holder(tmp_path):
    for until in ("Infinity", "NaN", '"inf"', "9" * 400, "[]", "[" * 60_000):
        (tmp_path / machine_lock.NAME).write_text(f'{{"pid": 1, "until_s": {until}}}')
        descriptor = os.open(tmp_path / machine_lock.NAME, os.O_RDONLY)
        try:
            assert machine_lock._read_holder(descriptor) == {}, until
        finally:
            os.close(descriptor)


@pytest.mark.parametrize("note", ["[]", "{}", "null", '{"files": 1, "bytes": 12, "digest": 3, "token": 4}'])
def test_a_sidecar_with_a_damaged_note_is_converted_again(tmp_path, note):
    source, sidecar = tmp_path / "x.csv", tmp_path / "x.json"
    source.write_text("1,2.5\n3,4.5\n")
    sidecar.write_text(f'{{"shape": [2, 2], "source": {{"bytes": 12, "sha256": "0"}}, "read": {note}}}')
    assert source_state.choose_token([str(source)], sidecar) is None


def test_a_file_of_another_size_is_not_the_one_that_was_converted(tmp_path):
    from study.data.conversion import convert
    from study.data.tabular import Form

    (tmp_path / "x.csv").write_text("1,2.5\n3,4.5\n")
    convert(tmp_path / "x.csv", tmp_path / "x.npy", tmp_path / "x.json", Form.from_spec({"header": False}))
    (tmp_path / "x.csv").write_text("1,2.5\n3,4.5,\n")
    for name in (name for name in loaders.LOADERS if loaders.LOADERS[name].reads == "raw"):
        with pytest.raises(StudyError, match="x.csv: has 13 bytes, 12 were converted"):
            loaders.load_matrix(name, tmp_path / "x.csv", tmp_path / "x.json", {"header": False})

"""What is wrong with what runs left behind: results that were changed, cut off, or are of another version."""

import gzip
import json
import shutil
import subprocess
import sys

import yaml
from place import SCRIPTS, WAIT_S, one_line_error
from registry import fault

from study.core.files import read_json, sha256, write_sealed


def good_run(place, **changes):
    """The folder of a run that ended well, without its record."""
    folder, kept = place.folder / "run", None if changes else place.good
    if kept and kept.exists():
        shutil.copytree(kept, folder)
        return folder
    assert place.run(**changes)["status"] == "ok"
    (folder / "record.json").unlink()
    if kept:
        shutil.copytree(folder, kept)
    return folder


def record_line(folder):
    """What makes the record of a finished run."""
    return calling("study.records.renewal", "make", str(folder))


def timeline_line(folder):
    """What reads the timeline of a finished run."""
    return calling("study.records.renewal", "summarize_timeline", str(folder))


def calling(module, function, text):
    code = f"from {module} import {function}\nfrom study.core.errors import exit_with_message\n"
    return [sys.executable, "-c", f"{code}exit_with_message(lambda: {function}({text!r}))"]


def changed(place, name, change, words):
    """A run's file is changed after the run: making the record ends with one line of error that has ``words``."""
    folder = good_run(place)
    path = folder / name
    path.write_text(change(path.read_text()))
    place.injected()
    one_line_error(record_line(folder), [name, *words])
    place.detected()
    assert not (folder / "record.json").exists()


@fault("a run's history is changed after the run", "artefact", quick=True)
def history_changed(place):
    """No record is made of it: one line of error that names the file."""
    changed(place, "history.csv", lambda text: text.replace("1,", "2,", 1), ["was changed after the run"])


def rewritten(folder, name, text):
    """Change a file of a run and its checksum with it, as no run would."""
    (folder / name).write_text(text)
    outcome = read_json(folder / "outcome.json")
    outcome["files"][name] = sha256(folder / name)
    write_sealed(folder / "outcome.json", outcome)


@fault("an empty telemetry.csv", "artefact")
def empty_telemetry(place):
    """The record has no power, and says why."""
    folder = good_run(place, machine={"power_sensors": [], "power_model": {"idle_w": 1, "peak_w": 2}})
    rewritten(folder, "telemetry.csv", "")
    place.injected()
    subprocess.run(record_line(folder), check=True, capture_output=True)
    place.detected()
    power = json.loads((folder / "record.json").read_text())["power"]
    assert power["energy_job_j"] is None and power["reason"], power


@fault("a timeline that was cut off", "artefact")
def timeline_cut_off(place):
    """What is whole of it counts, what was lost is counted too, and the record is made."""
    folder = good_run(place, trace=True)
    text = gzip.decompress((folder / "timeline.json.gz").read_bytes())
    (folder / "timeline.json.gz").write_bytes(gzip.compress(text[: len(text) * 2 // 3]))
    place.injected()
    subprocess.run(timeline_line(folder), check=True, capture_output=True)
    place.detected()
    found = json.loads((folder / "communication.json").read_text())
    assert found["dropped_events"] + found["lost_bytes"] > 0
    assert found["broadcast_span_s"] > 0


def reading_line(folder):
    return calling("study.records.record", "read_record", str(folder / "record.json"))


@fault("a record of an older version", "artefact", quick=True)
def older_record(place):
    """Refused by name of its version; it says to delete it, and it is regenerated from the run's files."""
    folder = good_run(place)
    subprocess.run(record_line(folder), check=True, capture_output=True)
    record = read_json(folder / "record.json")
    write_sealed(folder / "record.json", {**record, "schema_version": 3})
    place.injected()
    one_line_error(reading_line(folder), ["schema version 3", "whole folder"])
    place.detected()
    subprocess.run(record_line(folder), check=True, capture_output=True)
    assert read_json(folder / "record.json") == record


@fault("a diverging training", "artefact")
def diverging(place):
    """A failed run of kind diverged, with the step; no accuracy."""
    run = place.definition()
    run["benchmark"]["learning_rate"] = 1e30
    (place.folder / "diverging.yaml").write_text(yaml.safe_dump(run))
    folder = place.folder / "run"
    line = [sys.executable, SCRIPTS / "launch_training.py", "--run", place.folder / "diverging.yaml"]
    place.injected()
    subprocess.run([*line, "--outcome", folder / "outcome.json"], check=True, capture_output=True, timeout=WAIT_S)
    subprocess.run(record_line(folder), check=True, capture_output=True)
    place.detected()
    record = json.loads((folder / "record.json").read_text())
    assert record["failure"]["kind"] == "diverged" and record["quality"] is None
    assert "the loss is not finite from step" in record["failure"]["message"]

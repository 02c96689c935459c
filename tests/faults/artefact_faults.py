"""What is wrong with what runs left behind: results that were changed, cut off, or are of another version."""

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

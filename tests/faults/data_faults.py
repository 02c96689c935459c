"""What is wrong with files: datasets that are not what they should be, full disks, kills in the middle of writing."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
from place import SCRIPTS, WAIT_S, one_line_error
from registry import fault

FORM = {"header": False, "codes": [{"column": 0, "values": [0, 1]}]}


def conversion(place, form=FORM, name="source.csv", *options):
    line = [sys.executable, SCRIPTS / "convert_dataset.py", place.folder / name, "--form", json.dumps(form)]
    return [*line, "--matrix", place.folder / "out.npy", "--sidecar", place.folder / "out.json", *options]


@fault("a bit of a converted file is flipped", "dataset")
def converted_flipped(place):
    """One line of error that names the file and says to delete it; nothing trains on it."""
    flipped = lambda content: content[:-5] + bytes([content[-5] ^ 1]) + content[-4:]  # noqa: E731
    not_launched(place, "path", flipped, ["train.npy", "was changed", "delete it"])


def not_launched(place, kind, change, words):
    """A file of the training data is changed: the launch ends with one line of error with ``words``."""
    paths = place.definition()["data"]["train"]
    changed = place.folder / Path(paths[kind]).name
    changed.write_bytes(change(Path(paths[kind]).read_bytes()))
    place.injected()
    launch = place.launch(data={"train": {**paths, kind: str(changed)}})
    _, errors = launch.communicate(timeout=WAIT_S)
    place.detected()
    said = [line for line in errors.splitlines() if line.startswith("error: ")]
    assert launch.returncode == 1 and len(said) == 1 and "Traceback" not in errors, errors[-1500:]
    assert not [word for word in words if word not in said[0]], said[0]
    assert not place.has_outcome()


@fault("a generated file is changed before its conversion", "dataset", quick=True)
def generated_changed(place):
    """One line of error that names the file and says to delete it; no converted file."""
    definition = {"source": "synthetic", "train_samples": 60, "test_samples": 10, "features": 60, "seed": 1}
    source, kept = place.folder / "source.csv", place.folder / "sum"
    line = [sys.executable, SCRIPTS / "fetch_dataset.py", "--benchmark", "nt3", "--file", "train", "--definition",
            json.dumps(definition), "--checksum", kept, "--output", source]  # fmt: skip
    subprocess.run(line, check=True, capture_output=True)
    subprocess.run(conversion(place, FORM, "source.csv", "--checksum", kept), check=True, capture_output=True)
    (place.folder / "out.npy").unlink()
    text = source.read_text()
    source.write_text(text[:-2] + str(9 - int(text[-2])) + "\n")
    place.injected()
    line = conversion(place, FORM, "source.csv", "--checksum", kept)
    one_line_error(line, ["source.csv", "was changed after it was fetched", "delete it"])
    place.detected()
    assert not (place.folder / "out.npy").exists()


def big_source(place, megabytes):
    line = b"0," + b",".join(b"%.6f" % (value / 7) for value in range(2000)) + b"\n"
    path = place.folder / "source.csv"
    with open(path, "wb") as handle:
        for _ in range(megabytes * 1_000_000 // len(line)):
            handle.write(line)
    return path


HELD_CONVERSION = """
import pathlib, runpy, sys, time
import tqdm
def update(*_):
    pathlib.Path({written!r}).touch()
    time.sleep(36_000)
tqdm.tqdm.update = update  # what a conversion calls after each block that it has written
sys.argv[0] = {program!r}
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@fault("the converting process is killed", "disk")
def conversion_killed(place):
    """Nothing has the name of a converted file; the next conversion is whole."""
    big_source(place, 60)
    program, *arguments = conversion(place)[1:]
    held = HELD_CONVERSION.format(program=str(program), written=str(place.folder / "written"))
    process = subprocess.Popen(
        [sys.executable, "-c", held, *arguments], stderr=subprocess.DEVNULL, start_new_session=True
    )
    place.wait_until((place.folder / "written").exists, "the conversion to write")
    assert list(place.folder.glob(".out.npy.*.part")) and process.poll() is None
    place.injected()
    process.send_signal(signal.SIGKILL)
    process.wait()
    place.detected()
    assert not (place.folder / "out.npy").exists() and not (place.folder / "out.json").exists()
    subprocess.run(conversion(place), check=True, capture_output=True)
    assert len(np.load(place.folder / "out.npy", mmap_mode="r")) > 1000
    assert list(place.folder.glob(".out.*.part")) == [], "what the killed one left is removed"


class SmallDisk:
    """A file system of a few megabytes, where this user may mount one."""

    def __init__(self, folder, size):
        self.folder, self.size = folder, size

    def __enter__(self):
        self.folder.mkdir()
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={self.size}", "tmpfs", self.folder], capture_output=True, text=True
        )
        if mounted.returncode:
            raise NotHere(f"no small file system can be mounted here: {mounted.stderr.strip()}")
        return self.folder

    def __exit__(self, *_):
        subprocess.run(["umount", "-l", self.folder], check=True)


class NotHere(Exception):
    """The fault cannot be put in on this machine."""


@fault("the disk is full while a dataset is converted", "disk", quick=True)
def disk_full_in_conversion(place):
    """One line of error; nothing is left on the full disk, not even a part."""
    source = big_source(place, 30)
    with SmallDisk(place.folder / "disk", "2m") as disk:
        line = conversion(place)
        line[line.index("--matrix") + 1], line[line.index("--sidecar") + 1] = disk / "out.npy", disk / "out.json"
        place.injected()
        one_line_error(line, ["No space left"])
        place.detected()
        assert list(disk.iterdir()) == []
    assert source.exists()


@fault("the disk is full while a run writes", "disk")
def disk_full_in_a_run(place):
    """One line of error or a failed record, and no outcome that says ok; no process is left."""
    with SmallDisk(place.folder / "disk", "150k") as disk:
        filler = disk / "filler"
        launch = place.launch("disk/run", epochs=100_000)
        place.wait_for_epoch(2, "disk/run")
        place.injected()
        with open(filler, "wb", buffering=0) as handle:
            while True:
                try:
                    handle.write(b"x" * 512)
                except OSError:
                    break
        place.wait_until(lambda: len(place.ranks("disk/run")) == 2, "the ranks")
        os.kill(place.ranks("disk/run")[1].pid, signal.SIGKILL)
        _, errors = launch.communicate(timeout=WAIT_S)
        place.detected()
        said_so = launch.returncode == 1 and "No space left" in errors and "Traceback" not in errors
        recorded = place.has_outcome("disk/run") and place.outcome("disk/run")["status"] == "failed"
        assert said_so or recorded, errors[-800:]
        place.nothing_is_left("disk/run")

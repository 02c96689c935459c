"""A user's own data that change after their conversion: converted again, whatever the times of the files say."""

import os
import re
import shutil
import time

import numpy as np
import pandas as pd
import pytest
import yaml
from PIL import Image

from study.core.files import read_json, write_sealed
from study.experiment import expansion

IMAGES = """
description: a test
datasets:
  photos:
    {benchmark: lenet, source: image_files, layout: folder, train: photos, test: photos, image_size: 12, classes: 2}
runs: [{benchmark: lenet, dataset: photos, scaling: weak, epochs: 1, gpus: 1, batch_size: 1, loader: [memory, lmdb]}]
tables: [scaling]
"""
TABLES = """
description: a test
datasets:
  mine: {benchmark: nt3, source: path, train: mine/train.csv, test: mine/test.csv}
runs: [{benchmark: nt3, dataset: mine, scaling: weak, epochs: 1, gpus: 1, batch_size: 2, loader: read_csv}]
tables: [scaling]
"""


def picture(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full((12, 12, 3), value, np.uint8)).save(path)


def sidecar(text, name):
    """The sidecar of the converted training file of the study's dataset."""
    (dataset,) = expansion.expand("tiny", yaml.safe_load(text), "tiny.yaml").datasets.values()
    return f"data/converted/{dataset.benchmark}/{dataset.id}/{name}.json"


def conversions(project, targets):
    return sum(count for rule, count in project.plan(*targets).items() if rule.startswith("convert"))


@pytest.mark.long
@pytest.mark.slow
def test_images_are_converted_again_when_a_file_of_an_inner_folder_changes(fresh):
    for name in "ab":
        picture(fresh.root / "photos" / name / "inner" / "1.png", 9)
    fresh.add_study("tiny", IMAGES)
    targets = [sidecar(IMAGES, "train.memory")]
    fresh.snakemake(*targets)
    assert conversions(fresh, targets) == 0
    picture(fresh.root / "photos" / "a" / "inner" / "2.png", 200)
    assert conversions(fresh, targets) == 1, "added"
    fresh.snakemake(*targets)
    assert conversions(fresh, targets) == 0, "once"
    first, second = (fresh.root / "photos" / "a" / "inner" / f"{number}.png" for number in (1, 2))
    status = first.stat()
    picture(first, 77)
    os.utime(first, ns=(status.st_atime_ns, status.st_mtime_ns - 10**12))
    assert conversions(fresh, targets) == 1, "replaced by an older file"
    picture(first, 9)
    assert conversions(fresh, targets) == 0, "the same content again"
    second.rename(second.with_name("0.png"))
    assert conversions(fresh, targets) == 1, "renamed, so that the order is another"


@pytest.mark.slow
def test_tables_are_converted_again_when_an_older_file_takes_their_place(fresh):
    folder, rng = fresh.root / "mine", np.random.default_rng(1)
    folder.mkdir()
    for name in ("train", "test", "other"):
        np.savetxt(folder / f"{name}.csv", np.column_stack([np.arange(6) % 2, rng.random((6, 60))]), "%.3f", ",")
        text = (folder / f"{name}.csv").read_text().replace("0.000,", "0,", 1)
        (folder / f"{name}.csv").write_text(re.sub(r"^([01])\.000", r"\1", text, flags=re.M))
    fresh.add_study("tiny", TABLES)
    targets = [sidecar(TABLES, "train")]
    fresh.snakemake(*targets)
    assert conversions(fresh, targets) == 0
    _as_an_older_version_left_it(fresh.root / targets[0])
    assert conversions(fresh, targets) == 0, "without a note it stays valid"
    os.utime(folder / "other.csv", (1, 1))
    shutil.copy2(folder / "other.csv", folder / "train.csv")
    assert conversions(fresh, targets) == 1
    fresh.snakemake(*targets)
    assert conversions(fresh, targets) == 0
    ahead = time.time() + 1190
    os.utime(folder / "train.csv", (ahead, ahead))
    done = fresh.snakemake("--dry-run", check=False)
    assert done.returncode != 0
    assert "mine/train.csv: its time is 1,1" in done.stdout + done.stderr
    assert "touch mine/train.csv" in done.stdout + done.stderr


def _as_an_older_version_left_it(path):
    """A sidecar without the note of what was read."""
    status, content = path.stat(), read_json(path)
    assert content.pop("read")["token"] is None, "a first conversion has the params of an older version's"
    write_sealed(path, content)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


RUN = """
description: a test
datasets: {nt3: {source: synthetic, train_samples: 40, test_samples: 20, features: 60, seed: 1}}
runs: [{benchmark: nt3, scaling: weak, epochs: 1, gpus: 1, loader: npy}]
tables: [scaling]
"""


@pytest.mark.long
@pytest.mark.slow
def test_tables_are_made_again_when_an_older_record_takes_a_record_s_place(fresh):
    """As from a backup, with its time: older than all that was made of the other record."""
    fresh.add_study("tiny", RUN)
    fresh.snakemake()
    (record,) = (fresh.root / "results").rglob("record.json")
    (runs,) = (fresh.root / "results").rglob("runs.csv")
    content, status = read_json(record), record.stat()
    assert fresh.plan() == {}
    content["phases"]["train"] = dict.fromkeys(content["phases"]["train"], 77.25)
    write_sealed(record, content)
    os.utime(record, ns=(status.st_atime_ns, status.st_mtime_ns - 3 * 10**9))
    planned = fresh.plan()
    assert planned["make_table"] == 1
    assert "train" not in planned
    fresh.snakemake()
    assert pd.read_csv(runs).train_s.tolist() == [77.25]
    assert fresh.plan() == {}

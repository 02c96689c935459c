"""A user's own data that change after their conversion: converted again, whatever the times of the files say."""

import contextlib
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


def date(path, time_ns):
    os.utime(path, ns=(time_ns, time_ns))


def sidecar(project, text, name):
    """The sidecar of the converted training file of the study's dataset."""
    (dataset,) = expansion.expand_study("tiny", yaml.safe_load(text), "tiny.yaml").datasets.values()
    with contextlib.chdir(project.root):
        return f"data/converted/{dataset.benchmark}/{dataset.converted_id}/{name}.json"


def conversions(project, targets):
    return sum(count for rule, count in project.plan(*targets).items() if rule.startswith("convert"))


@pytest.mark.long
@pytest.mark.slow
def test_images_are_converted_again_when_a_file_of_an_inner_folder_changes(fresh):
    for name in "ab":
        picture(fresh.root / "photos" / name / "inner" / "1.png", 9)
    fresh.add_study("tiny", IMAGES)
    targets = [sidecar(fresh, IMAGES, "train.memory")]
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
    targets = [sidecar(fresh, TABLES, "train")]
    fresh.snakemake(*targets)
    assert conversions(fresh, targets) == 0
    os.utime(folder / "other.csv", (1, 1))
    shutil.copy2(folder / "other.csv", folder / "train.csv")
    assert conversions(fresh, targets) == 1
    fresh.snakemake(*targets)
    assert conversions(fresh, targets) == 0
    made = read_json(fresh.root / targets[0])
    write_sealed(fresh.root / targets[0], {**made, "definition": {**made["definition"], "drop": [1]}})
    shutil.rmtree(fresh.root / ".snakemake")
    assert conversions(fresh, targets) == 1, "converted in another way, as its sidecar says"
    ahead = time.time() + 1190
    os.utime(folder / "train.csv", (ahead, ahead))
    done = fresh.snakemake("--dry-run", check=False)
    assert done.returncode != 0
    assert "mine/train.csv: its time is 1,1" in done.stdout + done.stderr
    assert "touch mine/train.csv" in done.stdout + done.stderr


RUN = """
description: a test
datasets: {nt3: {source: synthetic, train_samples: 40, test_samples: 20, features: 60, seed: 1}}
runs: [{benchmark: nt3, scaling: weak, epochs: 1, gpus: 1, loader: npy}]
tables: [scaling]
"""


@pytest.mark.long
@pytest.mark.slow
def test_tables_are_made_again_when_another_record_takes_a_record_s_place(fresh):
    """As from a backup, with its time or a new one, and whenever the outcome beside it was written."""
    fresh.add_study("tiny", RUN)
    fresh.snakemake()
    (record,) = (fresh.root / "results").rglob("record.json")
    (outcome,) = (fresh.root / "results").rglob("outcome.json")
    (runs,) = (fresh.root / "results").rglob("runs.csv")
    content, made_ns = read_json(record), record.stat().st_mtime_ns
    assert fresh.plan() == {}
    for train_s, age_s, age_of_outcome_s in ((77.25, 3, 0), (78.5, 0, 0), (79.75, 3, 3600)):
        date(outcome, made_ns - age_of_outcome_s * 10**9)
        content["phases"]["train"] = dict.fromkeys(content["phases"]["train"], train_s)
        write_sealed(record, content)
        if age_s:
            date(record, made_ns - age_s * 10**9)
        planned = fresh.plan()
        assert planned["make_table"] == 1
        assert "train" not in planned
        fresh.snakemake()
        assert pd.read_csv(runs).train_s.tolist() == [train_s]
        assert fresh.plan() == {}

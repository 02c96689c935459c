"""Images through Snakemake and two real ranks: generated, converted, trained on; and a broken file of the user's."""

import pandas as pd
import pytest
import yaml

STUDY = """
description: a test
datasets:
  lenet:
    {source: synthetic_images, train_samples: 80, test_samples: 20, image_size: 12, resize: 14, stored_width: 40,
     stored_height: 30, record_kb: 1.4, classes: 10, seed: 1}
runs:
  - {benchmark: lenet, scaling: weak, epochs: 1, gpus: 2, batch_size: 20, sharding: by_rank, loader: tfrecord,
     storage: [first, second]}
tables: [scaling, storage]
"""
BROKEN = """
description: a test
datasets:
  photos:
    {benchmark: lenet, source: image_files, layout: folder, train: photos, test: photos, image_size: 12, classes: 2}
runs: [{benchmark: lenet, dataset: photos, scaling: weak, epochs: 1, gpus: 2, batch_size: 1, loader: lmdb}]
tables: [scaling]
"""


@pytest.mark.long
def test_lenet_on_two_ranks(fresh):
    """From a shared storage and from one on each node."""
    for name in ("first", "second"):
        (fresh.root / name).mkdir()
    folders = f"storage: {{first: {fresh.root}/first}}\nstorage_on_nodes: {{second: {fresh.root}/second}}\n"
    fresh.change("config/machines/local.yaml", "node_storage: /tmp\n", f"node_storage: /tmp\n{folders}")
    fresh.add_study("images", STUDY)
    fresh.snakemake(study="images")
    runs = pd.read_csv(fresh.made / "runs.csv")
    assert (runs.status == "ok").all(), runs.failure_message.tolist()
    assert runs.ranks_agree.all()
    assert runs.samples_per_rank.tolist() == [40, 40]
    assert runs.final_weights_crc32.nunique() == 1, "from both storages"
    assert (runs.input_wait_per_step_s > 0).all()
    assert runs.top5_accuracy.between(0, 1).all()
    assert fresh.plan(study="images") == {}
    _check_storage(fresh, runs)
    (fresh.root / "photos" / "a").mkdir(parents=True)
    (fresh.root / "photos" / "b").mkdir()
    for name in "ab":
        (fresh.root / "photos" / name / "1.jpg").write_text("no image")
    fresh.add_study("broken", BROKEN)
    done = fresh.snakemake(study="broken", check=False)
    assert done.returncode != 0
    assert "error: photos/a/1.jpg: is neither JPEG nor PNG: it begins with b'no image'" in done.stdout + done.stderr
    assert not list(fresh.results.glob("runs/lenet/photos*")), "nothing has trained"


def _check_storage(project, runs):
    """Record and table have the storage.

    Snakemake copies to the shared storage, where the files stay. The run copies to its node, where nothing stays.
    """
    assert runs.storage.tolist() == ["first", "second"]
    for run in runs.itertuples():
        definition = yaml.safe_load(((project.results / run.record).parent / "run.yaml").read_text())
        begin = f"{project.root}/first/" if run.storage == "first" else "data/"
        assert all(paths["path"].startswith(begin) for paths in definition["data"].values())
    assert list((project.root / "second").iterdir()) == []
    folders = list((project.root / "data").glob("converted/lenet/*/*.tfrecord"))
    size = sum(path.stat().st_size for folder in folders for path in folder.iterdir()) / 1e6
    table = pd.read_csv(project.made / "tables" / "storage.csv").set_index("storage")
    assert table.stage_s.notna().to_dict() == {"first": False, "second": True}
    assert table.staged_mb["second"] == pytest.approx(size)
    assert table.node_read_mb["second"] > size, "two ranks read all test images"
    assert (table.throughput_samples_per_s > 0).all()

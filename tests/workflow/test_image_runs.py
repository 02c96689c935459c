"""Images through Snakemake and two real ranks: generated, converted, trained on; and a broken file of the user's."""

import pandas as pd

STUDY = """
description: a test
datasets:
  lenet:
    {source: synthetic_images, train_samples: 80, test_samples: 20, image_size: 12, resize: 14, classes: 10, seed: 1}
runs:
  - {benchmark: lenet, scaling: weak, epochs: 1, gpus: 2, batch_size: 20, sharding: by_rank, loader: tfrecord,
     input_checksum: [false, true]}
loading:
  - {benchmark: lenet, loader: tfrecord, repeats: 1}
tables: [scaling, image_formats]
"""
BROKEN = """
description: a test
datasets:
  photos:
    {benchmark: lenet, source: image_files, layout: folder, train: photos, test: photos, image_size: 12, classes: 2}
runs: [{benchmark: lenet, dataset: photos, scaling: weak, epochs: 1, gpus: 2, batch_size: 1, loader: lmdb}]
tables: [scaling]
"""


def test_lenet_on_two_ranks(fresh):
    fresh.add_study("images", STUDY)
    fresh.snakemake(study="images")
    runs = pd.read_csv(fresh.made / "runs.csv")
    assert (runs.status == "ok").all(), runs.failure_message.tolist()
    assert runs.ranks_agree.all()
    assert runs.samples_per_rank.tolist() == [40, 40]
    assert runs.final_weights_crc32.nunique() == 1, "with and without checksums of the input"
    assert runs.inputs_crc32.notna().tolist() == [False, True]
    assert (runs.input_wait_per_step_s > 0).all()
    assert runs.top5_accuracy.between(0, 1).all()
    loads = pd.read_csv(fresh.made / "loading.csv")
    assert ((loads.load_s > 0) & (loads.decode_s > 0)).all(), loads.message.tolist()
    assert "| tfrecord |" in (fresh.made / "tables" / "image_formats.md").read_text()
    assert fresh.plan(study="images") == {}
    (fresh.root / "photos" / "a").mkdir(parents=True)
    (fresh.root / "photos" / "b").mkdir()
    for name in "ab":
        (fresh.root / "photos" / name / "1.jpg").write_text("no image")
    fresh.add_study("broken", BROKEN)
    done = fresh.snakemake(study="broken", check=False)
    assert done.returncode != 0
    assert "error: photos/a/1.jpg: is neither JPEG nor PNG: it begins with b'no image'" in done.stdout + done.stderr
    assert not list(fresh.results.glob("runs/lenet/photos*")), "nothing has trained"

"""Switches on real ranks: what they change of bytes, allreduces and weights, and what they leave alone."""

import os

import numpy as np
import pytest

from study.instruments.timeline import summarize_timeline

NT3 = {"benchmark": "nt3", "scaling": "weak", "epochs": 4, "gpus": 2, "loader": "npy"}  # 20 steps, ten gradients
STEPS = 20
# 45 steps of 10 MB of gradients, beside which Horovod's own messages do not matter; no dropout.
P1B1 = {"benchmark": "p1b1", "scaling": "weak", "epochs": 9, "batch_size": 20, "gpus": 2, "loader": "npy"}
COMPRESSED = {**P1B1, "gradient_compression": "fp16"}


def sent(run):
    """Bytes of both ranks per epoch, without the first."""
    return sum(rank["tcp_sent_bytes"] for rank in run.metrics["ranks"])


def largest_difference(one, other):
    return max(np.abs(a - b).max() for a, b in zip(one.weights, other.weights, strict=True))


def step_s(run):
    return run.metrics["ranks"][0]["step_times"]["median_s"]


@pytest.fixture(scope="module")
def traced(trained):
    return trained({**NT3, "trace": True})


@pytest.fixture(scope="module")
def large(trained):
    return trained(P1B1, and_then=[COMPRESSED])


def test_compressed_gradients_are_half_the_bytes(trained, large):
    compressed = trained(COMPRESSED)
    assert sent(compressed) / sent(large) == pytest.approx(0.5, abs=0.01)
    assert compressed.history.loss.tolist() == pytest.approx(large.history.loss.tolist(), rel=0.01)
    assert largest_difference(compressed, large) > 0


@pytest.mark.long
def test_four_backward_passes_are_a_quarter_of_the_bytes(trained, large):
    passes = trained({**P1B1, "backward_passes_per_step": 4})  # ten allreduces in the 40 steps after the first epoch
    assert sent(passes) / sent(large) == pytest.approx(0.25, rel=0.02)
    assert passes.history.loss.iloc[-1] < passes.history.loss.iloc[0]
    assert len({rank["final_weights_crc32"] for rank in passes.metrics["ranks"]}) == 1


@pytest.mark.long
def test_xla_trains_the_same(trained, large):
    compiled = trained({**P1B1, "xla": True})
    assert 0 < largest_difference(compiled, large) < 1e-3
    assert compiled.history.loss.tolist() == pytest.approx(large.history.loss.tolist(), rel=1e-4)


@pytest.mark.long
def test_without_fusion_there_is_an_allreduce_per_gradient(trained, traced, large):
    apart = trained({**P1B1, "trace": True, "fusion_threshold_mb": 0})
    fused, single = (summarize_timeline(run.folder / "ranks" / "timeline.json", []).summary for run in (traced, apart))
    assert fused["allreduce_tensors"] == 10 * STEPS
    assert STEPS <= fused["allreduce_operations"] < 10 * STEPS
    assert single["allreduce_operations"] == single["allreduce_tensors"] == len(apart.weights) * 45
    assert sent(apart) / sent(large) == pytest.approx(1, abs=0.01)
    assert largest_difference(apart, large) < 1e-6


@pytest.mark.long
def test_how_batches_are_made_and_when_they_are_sent_changes_no_bit(trained, traced):
    other = {"prefetch_batches": 0, "map_parallel_calls": 3, "cycle_time_ms": 50, "binding": "numa"}
    changed = trained({**NT3, **other})
    assert largest_difference(changed, traced) == 0
    assert changed.metrics["ranks"][0]["cores"]["compute"]
    assert step_s(changed) > 0.04, "each step waits for a cycle"


def test_the_custom_loop_trains_as_keras_does(trained, traced):
    custom = trained({**NT3, "training_loop": "custom", "step_delay_ms": 80})
    assert largest_difference(custom, traced) < 1e-6
    quality = ["loss", "accuracy", "val_loss", "val_accuracy", "learning_rate"]
    assert custom.history[quality].to_numpy() == pytest.approx(traced.history[quality].to_numpy(), rel=1e-4)
    assert step_s(custom) > 0.08, "the injected delay"


@pytest.mark.long
def test_layers_in_16_bits_train_nearly_as_in_32(trained, traced):
    mixed = trained({**NT3, "precision": "mixed_bfloat16"})
    assert 0 < largest_difference(mixed, traced) < 1e-2
    assert mixed.history.loss.tolist() == pytest.approx(traced.history.loss.tolist(), rel=0.02)
    assert len({rank["final_weights_crc32"] for rank in mixed.metrics["ranks"]}) == 1


STRIPED = """
description: a test
datasets:
  nt3: {source: synthetic, train_samples: 60, test_samples: 20, features: 60, seed: 1}
runs: [{benchmark: nt3, scaling: weak, epochs: 2, gpus: 1, loader: npy, lustre_stripes: 3}]
tables: [scaling]
"""
LFS = """#!/bin/sh
[ "$1 $2 $3" = "setstripe -c 3" ] && touch "$4" && echo "$4" >> "$0.log"
"""


def test_striped_copies_are_made_where_the_machine_has_lustre(fresh, monkeypatch):
    """With a stand-in for Lustre's program."""
    fresh.add_study("striped", STRIPED)
    done = fresh.snakemake(study="striped", check=False)
    assert done.returncode != 0
    assert "lustre_stripes (1 run): local has no file_system: lustre in its file; use 0" in done.stdout + done.stderr
    fresh.change("config/machines/local.yaml", "gpus_per_rank: 0", "gpus_per_rank: 0\nfile_system: lustre")
    tool = fresh.root / "bin" / "lfs"
    tool.parent.mkdir()
    tool.write_text(LFS)
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}{os.pathsep}{os.environ['PATH']}")
    fresh.snakemake("--until", "stripe_3_0", study="striped")
    copies = sorted(path.relative_to(fresh.root) for path in fresh.root.glob("data/stripes-3/**/*.npy"))
    assert len(copies) == 2
    assert not [*fresh.root.glob("data/stripes-3/**/*.part")], "a copy that is cut off keeps this name"
    for copy in copies:
        original = fresh.root / str(copy).replace("stripes-3/", "")
        assert (fresh.root / copy).read_bytes() == original.read_bytes()
        assert str(copy) in (tool.with_name("lfs.log")).read_text()

"""The parts of `make bench`, each made small: that they measure what they say, not how much."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from project import ROOT, WAIT_S

PERFORMANCE = ROOT / "performance"


def run(*arguments):
    done = subprocess.run([sys.executable, *map(str, arguments)], capture_output=True, text=True, timeout=WAIT_S)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.fixture
def matrix(tmp_path):
    np.save(tmp_path / "m.npy", np.ones((60, 3000), dtype=np.float32))
    return tmp_path / "m.npy"


def test_copying(matrix):
    times = json.loads(run(PERFORMANCE / "child.py", "copy", matrix, 3))
    assert {name: len(found) for name, found in times.items()} == {"memcpy": 3, "touched": 3, "copied": 3}


def test_epochs_without_horovod():
    """In one process, as to import TensorFlow takes longer."""
    program = "import child, json\nprint(json.dumps([child.nt3_epochs(how, 40, 60, 3) for how in ('keras', 'ours')]))"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=PERFORMANCE, capture_output=True, text=True, timeout=WAIT_S
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert [len(found["epoch_s"]) for found in json.loads(done.stdout)] == [2, 2], "the first epoch is left out"


def test_what_sampling_costs():
    program = "import sampling; print(sampling.measure('local', rate_hz=10, pairs=2, seconds=0.1).ratio)"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=PERFORMANCE, capture_output=True, text=True, timeout=WAIT_S
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert float(done.stdout) > 0


def test_what_measuring_steps_costs():
    small = ("--benchmark", "nt3", "--features", 60, "--every", 2, "--pairs", 2)
    assert run(PERFORMANCE / "gradient_noise.py", *small).count("95 % interval") == 4


def test_ratios_are_of_medians_and_their_spread_of_pairs():
    program = """
from ratios import alternate, compared, faster
calls = []
found = alternate("x", 3, {name: lambda name=name: calls.append(name) or len(calls) for name in "ab"})
assert "".join(calls) == "abbaab" and found == {"a": [1, 4, 5], "b": [2, 3, 6]}
ratio = faster("b", [2, 4, 6], "a", [4, 4, 24])
assert (ratio.ratio, ratio.low, ratio.high) == (1, 1, 4), ratio
"""
    subprocess.run([sys.executable, "-c", program], cwd=PERFORMANCE, check=True)


def test_files_are_generated_where_there_are_none(tmp_path):
    program = """
import sys
from pathlib import Path
import bench
study = bench.expansion.load_study("formats")
for entry in study.loading:
    entry.dataset.definition.update(train_samples=400, test_samples=100, features=30)
bench.expansion.load_study = lambda name: study
print(*(bench._csv(Path(sys.argv[1]), benchmark).stat().st_size > 1000 for benchmark in bench.FILES))
"""
    done = subprocess.run(
        [sys.executable, "-c", program, tmp_path],
        cwd=PERFORMANCE,
        env={**os.environ, "PYTHONPATH": f"{ROOT}/tests/workflow:{ROOT}/tests/unit"},  # as in the Makefile
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split() == ["True"] * 4

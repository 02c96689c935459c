"""The parts of `make bench`, each made small: that they measure what they say, not how much."""

import os
import subprocess
import sys

import pytest
from project import ROOT, WAIT_S

PERFORMANCE = ROOT / "performance"


def test_ratios_are_of_medians_and_their_spread_of_pairs():
    program = """
from ratios import alternate, compute_speedup
calls = []
found = alternate("x", 3, {name: lambda name=name: calls.append(name) or len(calls) for name in "ab"})
assert "".join(calls) == "abbaab" and found == {"a": [1, 4, 5], "b": [2, 3, 6]}
ratio = compute_speedup("b", [2, 4, 6], "a", [4, 4, 24])
assert (ratio.ratio, ratio.low, ratio.high) == (1, 1, 4), ratio
"""
    subprocess.run([sys.executable, "-c", program], cwd=PERFORMANCE, check=True)


@pytest.mark.long
def test_files_are_generated_where_there_are_none(tmp_path):
    program = """
import sys
from pathlib import Path
import bench
study = bench.expansion.load_study("loading")
for entry in study.loading:
    entry.dataset.definition.update(train_samples=400, test_samples=100, features=30)
bench.expansion.load_study = lambda name: study
print(*(bench._make_csv(Path(sys.argv[1]), benchmark).stat().st_size > 1000 for benchmark in bench.FILES))
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

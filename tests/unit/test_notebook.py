"""The gallery's notebook runs on its sample, and is committed without outputs."""

import json

import matplotlib
import matplotlib.pyplot as plt
import notebooks
import pandas as pd
import pytest

from study.core import validation
from study.core.paths import ROOT

NOTEBOOK = ROOT / "docs" / "notebooks" / "study_results.ipynb"
SAMPLE = ROOT / "docs" / "sample" / "study"


@pytest.fixture
def drawn(monkeypatch):
    """Figures without a screen, closed at the end."""
    matplotlib.use("Agg")
    monkeypatch.chdir(NOTEBOOK.parent)
    yield lambda: [plt.figure(number).axes for number in plt.get_fignums()]
    plt.close("all")


@pytest.mark.slow
def test_it_runs_on_its_sample(drawn):
    found = notebooks.run(NOTEBOOK)
    assert found["FOLDER"].resolve() == SAMPLE
    assert all(axes.has_data() for (axes,) in drawn()) and len(drawn()) == 3
    assert len(found["findings"]) and set(found["timed"]["record"]) <= set(found["runs"]["record"])
    assert {"load", "train"} <= set(found["of_phases"]["name"])
    assert found["of_phases"]["pid"].nunique() == 2


def test_it_has_no_outputs():
    assert [cell["id"] for cell in notebooks.cells(NOTEBOOK) if cell["outputs"] or cell["execution_count"]] == []


def test_its_sample_is_of_one_study():
    """Of real runs: findings and trace are of runs in the table."""
    content = json.loads((SAMPLE / "findings.json").read_text())
    validation.validate(content, "study_findings", "findings.json")
    runs = pd.read_csv(SAMPLE / "runs.csv", low_memory=False)
    records = set(runs["record"])
    assert content["findings"] and all(set(each["records"]) <= records for each in content["findings"])

"""A recommendation from real runs, by Snakemake and by make; it starts no run."""

import subprocess

import pandas as pd
import pytest
from project import BIN, STRONG, TINY, Project, copy_tree

from study.prediction.recommend import NOT_TRUSTED

GOAL = "results/local/studies/counts/recommendation/fastest"


@pytest.fixture(scope="module")
def measured(finished, tmp_path_factory):
    """The finished study's runs on 1 and 2 ranks, one more on 4, and two that are still to do."""
    project = Project(tmp_path_factory.mktemp("measured") / "project", study="counts")
    copy_tree(finished.root, project.root)
    four = STRONG.replace("[1, 2]", "4").replace("repeats: 2", "repeats: 1")
    project.add_study("four", TINY.replace(STRONG, four))
    project.snakemake("--until", "train", study="four")  # a recommendation reads records, and no table
    project.add_study("counts", TINY.replace(STRONG, STRONG.replace("[1, 2]", "[1, 2, 4]")))
    return project


def test_the_dry_run_says_what_is_expected(measured):
    """Runs of a few seconds on shared cores may be so noisy that no model fits: then nothing is predicted from it."""
    expected = measured.planned(study="counts")[1].partition("Expected for 1 run to do")[2]
    recommended = recommend(measured, "fastest", "--output", measured.root / "apart").stdout
    assert "recommended: " in recommended
    fits = NOT_TRUSTED not in recommended
    assert ("1 within 2 times the largest measured count" in expected) == fits
    assert (f"1 cannot be predicted, since {NOT_TRUSTED}" in expected) != fits
    assert (" node-hours" in expected) == fits


def test_snakemake_recommends_and_trains_nothing(measured):
    assert measured.plan(f"{GOAL}/recommendation.md", study="counts") == {"recommend": 1}
    started = measured.snakemake(f"{GOAL}/recommendation.md", study="counts")
    assert "Study counts on machine local" in started.stderr
    assert "Expected for" not in started.stderr, "only a dry run predicts what the runs take"
    table = pd.read_csv(measured.root / GOAL / "recommendation.csv")
    strong = table[table["scaling"] == "strong"]
    assert strong["ranks"].tolist() == [1, 2, 4]
    assert strong["recommended"].sum() == 1
    shown = (measured.root / GOAL / "recommendation.md").read_text()
    assert "recommended: " in shown
    assert "1 run of the study without a record yet" in shown
    assert (measured.root / GOAL / "prediction_curves.svg").stat().st_size > 1000
    assert measured.plan(f"{GOAL}/recommendation.md", study="counts") == {}


def recommend(project, goal, *options):
    line = [BIN / "python", "scripts/recommend.py", "--study", "counts", "--machine", "local", "--goal", goal, *options]
    done = subprocess.run(line, cwd=project.root, env=project.variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done


def test_the_command_prints_the_recommendation(measured):
    done = recommend(measured, "least_energy")
    assert "no recommendation: no run has energy" in done.stdout

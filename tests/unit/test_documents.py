"""The documents name only what exists."""

import math
import re
import sys
import tomllib

import documents
import numpy as np
import pandas as pd
import pytest
import yaml

from study.core.errors import StudyError
from study.experiment.expansion import load_study
from study.machines import machine
from study.records.record import read_record
from study.report.tables import TABLES
from study.workloads import base

PAGES = documents.tracked("*.md")


@pytest.mark.parametrize("page", PAGES)
def test_a_page_names_only_what_exists(page):
    assert documents.problems(documents.read(page), page) == []


@pytest.mark.parametrize("name", documents.tracked("*.yaml"))
def test_comments_name_only_files_that_exist(name):
    """Paths in the comments of YAML files, such as the schemas'."""
    comments = re.findall(r"(?:^|\s)# .*", documents.read(name))
    paths = re.findall(r"(?:scripts|config|docs|envs|tests|rules|profiles)/[\w/.-]*[\w/]", " ".join(comments))
    assert [path for path in paths if documents.unknown_path(path)] == []


@pytest.mark.parametrize(
    "text",
    ["`invented_column_s`", "`scripts/nothing.py`", "`nothing.json`", "`tables/nothing`", "`figures/icpp2019_figure99`",
     "`results/<machine>/nothings/`", "`teapot=formats`", "`staging: nothing`", "`gpus: 0`", "`--no-such-option`",
     "`make nothing`", "`make status STUDIES=laptop`", "`snakemake --config study=nothing`",
     "`snakemake --profile local results/local/studies/laptop/tables/nothing.md`", "`study recommend --aim fastest`",
     "[method](docs/method.md#nothing)", "![figure](docs/sample/nothing.svg)", "```\nmake nothing\n```",
     "```\nresults/<machine>/\n  nothing.json   a file\n```",
     "```\nsnakemake --profile theta --config study=icpp2019 \\\n  --grouped nodes_1=128\n```",
     "```yaml\ndescription: two\nruns: [{benchmark: nt3, nothing: 1}]\ndatasets: {}\ntables: [scaling]\n```",
     "```yaml\ntitle: a finding\nsentences: {}\n```"],
)  # fmt: skip
def test_an_invented_name_is_found(text):
    assert len(documents.problems(text, "README.md")) == 1


def test_every_exception_is_used():
    """A name that the documents no longer mention, or that the repository has by now, needs no exception."""
    text = " ".join(map(documents.read, PAGES))
    unused = [name for name in documents.elsewhere() if not re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text)]
    assert unused == []
    assert sorted(documents.elsewhere() & documents.vocabulary()) == []


def rows_of(page):
    """The cells of each row of a page's tables."""
    lines = [line for line in documents.read(page).splitlines() if line.startswith("|") and not line.startswith("|--")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


@pytest.mark.slow
def test_the_page_of_studies_has_the_sizes_of_its_studies():
    listed = {row[0].strip("`"): row[1:4] for row in rows_of("docs/studies.md") if len(row) == 6 and row[0] != "study"}
    assert listed
    for name, sizes in listed.items():
        study = load_study(name, {**machine.load("local"), "ranks_per_node": 2})
        ranks = max((run.gpus for run in study.runs), default=0)
        assert sizes == [str(len(study.runs)), str(len(study.loading)), str(ranks)], name


def test_messages_of_the_troubleshooting_page_are_those_of_the_code():
    source = "".join(map(documents.read, documents.tracked("scripts/*.py", "scripts/*.sh", "rules/*.smk")))
    source = re.sub(r'"\s*\n\s*f?"', "", source)
    ours = [row[0] for row in rows_of("docs/troubleshooting.md") if not row[0].endswith(("(Snakemake)", "(Slurm)"))]
    messages = [span for cell in ours for span in documents.SPAN.findall(cell) if " " in span and "make" not in span]
    assert messages
    assert [message for message in messages if message not in source] == []


def test_the_errors_of_the_icpp_paper_are_those_of_the_table():
    """Section, stated and derived number of each row."""
    table = TABLES["icpp2019_consistency"].make(pd.DataFrame(), pd.DataFrame()).frame
    known = {(f"{row.stated:g}", f"{row.derived:.6g}") for row in table[table.agrees == False].itertuples()}  # noqa: E712
    known = {(stated, f"{float(derived):.3f}".rstrip("0").rstrip(".")) for stated, derived in known}
    page = documents.read("docs/papers/icpp2019.md").split("## Its errors")[1]
    told = re.findall(r"^\|.*\| ([\d.]+) \| ([\d.]+) \|$", page, re.M)
    assert told
    assert [each for each in told if each not in known] == []


@pytest.mark.parametrize("paper", ["sc18", "han2019", "pittman2018", "prace2019"])
def test_what_follows_from_a_paper_s_numbers_is_in_its_claims(paper):
    """Each number of the section's table, to its own digits; parameters are in millions."""
    claims = TABLES[f"{paper}_claims"].make(pd.DataFrame(), pd.DataFrame()).frame
    ends = claims[["published_value", "published_lowest", "published_highest"]].astype(float).to_numpy().ravel()
    values = [abs(scale * each) for each in ends if not math.isnan(each) for scale in (1, 1e-6)]
    page = documents.read(f"docs/papers/{paper}.md").split("## What follows from its ")[1].split("\n## ")[0]
    rows = [line.strip("|").split("|")[1:] for line in page.splitlines() if line.startswith("| ")]
    published = slice(1) if paper == "prace2019" else slice(None)  # its other columns are of the text and of runs
    told = [number for row in rows for cell in row[published] for number in re.findall(r"\d+(?:\.\d+)?", cell)]
    assert told
    assert [n for n in told if not any(round(v, len(n.partition(".")[2])) == float(n) for v in values)] == []


@pytest.mark.slow
def test_the_errors_of_published_predictions_are_those_of_the_tables():
    """RMS error, worst error and points in the interval, of each row of the page."""
    tables = [TABLES[f"{paper}_prediction"].make(pd.DataFrame(), pd.DataFrame()) for paper in ("icpp2019", "sc18")]
    notes = " ".join(note for table in tables for note in table.notes)
    known = re.findall(
        r"RMS error ([\d.]+)%, worst ([-+][\d.]+)%(?: on \d+ ranks, (\d+ of \d+) in the interval)?", notes
    )
    page = documents.read("docs/prediction.md").split("fitted | predicted")[1]
    told = re.findall(r"^\|[^|]*\|[^|]*\| ([\d.]+) % \| ([-+][\d.]+) % \| (\d+ of \d+|) ?\|$", page, re.M)
    assert told and [each for each in told if each not in known] == []


def test_the_version_stands_once():
    """In pyproject.toml; the citation and the changelog repeat it."""
    version = tomllib.loads(documents.read("pyproject.toml"))["project"]["version"]
    citation = yaml.safe_load(documents.read("CITATION.cff"))
    assert citation["version"] == version
    assert re.search(r"^## ([\d.]+) - ", documents.read("CHANGELOG.md"), re.M)[1] == version


def test_the_graph_of_the_rules_has_only_rules():
    rules = {
        name
        for file in documents.tracked("rules/*.smk")
        for name in re.findall(r"^rule (\w+):", documents.read(file), re.M)
    }
    (graph,) = re.findall(r"```mermaid\n(.*?)```", documents.read("docs/method.md"), re.S)
    assert set(re.findall(r"\b[a-z]+_[a-z]+\b|\btrain\b|\brecommend\b", graph)) <= rules


def test_the_errors_of_the_prediction_in_the_laboratory_are_those_of_its_file():
    """Of the points that were not fitted; performance/prediction_lab.py computes them so."""
    table = pd.read_csv(documents.ROOT / "performance" / "prediction_lab.csv")
    told = []
    for quantity in ("mean_epoch_s", "runtime_s"):
        rows = table[(table["quantity"] == quantity) & ~table["fitted"]]
        error = (rows["error"] ** 2).mean() ** 0.5
        told.append((f"{100 * error:.1f}", str(rows["within_interval"].sum()), str(len(rows))))
    (epoch, runtime) = told
    page = " ".join(documents.read("docs/prediction.md").split())
    assert f"Time per epoch has an RMS error of {epoch[0]} %, and {epoch[1]} of {epoch[2]} points lie" in page
    assert f"Runtime has {runtime[0]} % and {runtime[1]} of {runtime[2]}:" in page


@pytest.mark.slow
def test_the_results_on_the_page_of_trust_are_those_of_their_files(capsys):
    """Each as its command computes it from the rows that are committed."""
    sys.path.insert(0, str(documents.ROOT / "performance"))
    import aa
    import check_trials

    files = {path.stem: pd.read_csv(path) for path in (documents.ROOT / "performance").glob("*.csv")}
    arms = aa.compare_arms(files["aa"])
    (slowed,) = arms[arms["arm"] == aa.SLOWED].itertuples()
    noise = files["intervals"][~files["intervals"]["noise"].str.contains("blocks")]
    holds = noise.filter(like="blocks_").to_numpy() * 100
    rules, replicates, fuzz = files["one_run"].set_index("rule"), files["replicates"], files["fuzz"]
    series = files["scaling_series"].query("calibration == 'without the source' and model == 'this_model'")
    cases, faults = pd.read_csv(documents.ROOT / "docs" / "cases.csv"), files["faults"].query("speed == 'full'")
    soak = files["slurm_soak"].iloc[-1]
    check_trials.print_report(files["check_trials"])
    reported = re.findall(
        r"\| (\w+ \w+(?: \w+)?) +\|[^|]*\|[^|]*\| +(\d+) \| +(\d+) \| +(\d+) \|", capsys.readouterr().out
    )
    found = [int(detected) for against, detected, _, _ in reported if against == "the reference"]
    alarms = {against: max(int(each[3]) for each in reported if each[0] == against) for against, *_ in reported}
    assert {*cases["result"], *faults["outcome"], *files["chaos"]["outcome"], soak["outcome"]} == {"pass"}
    assert fuzz["wrong"].sum() == 0
    results = [
        f"{('no', 'one')[arms[arms['arm'] == aa.AGAIN]['excludes_1'].sum()]} of 20 intervals",
        f"a ratio of {slowed.ratio:.3f} ({slowed.low:.3f} to {slowed.high:.3f}). In these short runs, "
        f"{slowed.detectable_pct:.0f} %",
        f"in {rules.false_alarms['one run below 95 % of the baseline']:.1%}".replace("%", " %"),
        f"in {rules.false_alarms['one run slower than the baseline']:.1%}".replace("%", " %"),
        f"{holds.min():.0f} to {holds.max():.0f} % do",
        f"{replicates['hold'].sum()} of {replicates['replicates'].sum()} intervals",
        f"{series['inside_percent'].min():.0f} to {series['inside_percent'].max():.0f} % of the points",
        f"{files['public_series']['series'].nunique()} public series",
        f"{len(cases)} cases", f"{cases['source'].str.contains('#').sum()} of them", f"{len(faults)} faults",
        f"{fuzz['cases'].sum():,} damaged files of {len(fuzz)} readers", f"{len(files['chaos'])} studies",
        f"{soak['points']} runs on a real Slurm, under {soak['strikes']} strikes",
        f"{min(found)} to {max(found)} found, by the limit; {alarms['the reference'] or 'no'} false alarm",
        f"up to {alarms['each unchanged try']} in {reported[-1][2]}",
    ]  # fmt: skip
    page = documents.read("docs/trust.md")
    assert [each for each in results if each not in page] == []


def test_the_sample_record_is_a_whole_record_of_this_version():
    """Of a real run; where the schema changes, take that of a new one."""
    path = documents.ROOT / "docs" / "sample" / "run.json"
    record = read_record(path)
    assert record["status"] == "ok"
    assert not re.search(r'"/|/(?:tmp|home|root)/', path.read_text())


def test_the_classifier_of_the_tutorial_has_one_hot_outputs():
    """Rows of the classes b, a, c | a: by name a is the first of three, so the rows of the test set are 1, 0, 0."""
    page = documents.read("docs/tutorials/own-model.md")
    (body,) = re.findall(r"```python\n(    def arrange\(.*?)```", page, re.S)
    names = {"np": np, "base": base, "StudyError": StudyError}
    exec(f"class Classifier(base.Benchmark):\n    synthetic_blocks = build_model = None\n{body}", names)

    def table(*classes):
        words = sorted(set(classes))
        rows = [[words.index(each), place, 10 * place] for place, each in enumerate(classes)]
        return base.Table(np.array(rows, np.float32), [words])

    spec = {"model": {"classes": 3}, "validation_share": 0.34}
    tables = {"train": table("b", "a", "c"), "test": table("a")}
    data = names["Classifier"](spec).arrange(tables, 1)
    assert data.train.arrays()[1].tolist() == [[0, 1, 0], [1, 0, 0]]
    assert data.validation.arrays()[1].tolist() == [[0, 0, 1]]
    assert data.test.arrays()[1].tolist() == [[1, 0, 0]]
    assert data.features == 2
    with pytest.raises(StudyError, match="model.classes: 3, but the files have 2: a, b"):
        names["Classifier"](spec).arrange({"train": table("b", "a"), "test": table("a")}, 1)

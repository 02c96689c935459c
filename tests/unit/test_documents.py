"""The documents name only what exists."""

import re

import documents
import pytest

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
    [
        "`invented_column_s`",
        "`made_up`",
        "`published_invented_s`",
        "`scripts/nothing.py`",
        "`machines/nothing.py`",
        "`config/studies/nothing.yaml`",
        "`nothing.json`",
        "`tables/nothing`",
        "`tables/icpp2019_table9`",
        "`figures/icpp2019_figure99`",
        "`results/<machine>/nothings/`",
        "`teapot=formats`",
        "`study=nothing`",
        "`staging: nothing`",
        "`gpus: 0`",
        "`nothing_per_rank: 1`",
        "`--no-such-option`",
        "`make nothing`",
        "`make status STUDIES=laptop`",
        "`NOT_A_VARIABLE=1 make setup`",
        "`snakemake --profile nothing`",
        "`snakemake --no-such-option`",
        "`snakemake --config study=nothing`",
        "`snakemake --profile local results/local/studies/laptop/tables/nothing.md`",
        "`python scripts/nothing.py`",
        "`python scripts/recommend.py --aim fastest`",
        "`scripts/lab.sh sideways`",
        "[method](nothing.md)",
        "[method](docs/method.md#nothing)",
        "[here](#nothing)",
        "![figure](docs/sample/nothing.svg)",
        "```\nmake nothing\n```",
        "```\nresults/<machine>/\n  nothing.json   a file\n```",
        "```\nsnakemake --profile theta --config study=icpp2019 \\\n  --grouped nodes_1=128\n```",
        "```yaml\ndescription: two\nruns: [{benchmark: nt3, nothing: 1}]\ndatasets: {}\ntables: [scaling]\n```",
        "```yaml\nbase: local\nnothing: 1\n```",
        "```yaml\ndescription: a goal\nminimise: nothing\n```",
    ],
)
def test_an_invented_name_is_found(text):
    assert len(documents.problems(text, "README.md")) == 1


def test_every_exception_is_used():
    """A name that the documents no longer mention, or that the repository has by now, needs no exception."""
    text = " ".join(map(documents.read, PAGES))
    unused = [name for name in documents.elsewhere() if not re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text)]
    assert unused == []
    assert sorted(documents.elsewhere() & documents.vocabulary()) == []

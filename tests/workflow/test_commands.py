"""Commands in the documents. Each is run in a copy of the project, or says why not, or another test runs its like.

A block of commands with `<!-- not run: REASON -->` above it is not run. Of Snakemake's commands only the plan is made.
"""

import os
import re
import shlex
import subprocess
import textwrap

import documents
import fork_server
import pytest
from project import BIN, ROOT, WAIT_S, copy_of_project

COMMAND = re.compile(r"(?:\w+=\S+ )*(?:make|snakemake|python|git|ssh|rsync|module|pip|\.|\S*scripts/\S+|\S*bin/\S+) \S")
REASON = re.compile(r"<!-- not run: ([^>]+) -->\s*$")
OWN_FILE = re.compile(r"# ((?:config|scripts)/\S+)\n")
QUICK = re.compile(r"make (?:status|recommend|tune|check)\b|snakemake |python scripts/\S+")
ELSEWHERE = {  # commands like these: the test that runs them, or what they are made of
    r"make (setup|study|quick|test)\b": ".ci/run",
    r"make help$": "tests/unit/test_shell_words.py",
    r"snakemake --profile local( --config study=\w+)?$": "tests/unit/test_documents.py",  # expands every study
    r"snakemake .*study=icpp2019": "tests/workflow/test_plans.py",
    r"snakemake .*--forcerun": "tests/workflow/test_plans.py",
    r"study compare ": "tests/unit/test_compare.py",
}


def blocks(page):
    """(text, whether it has commands and no reason not to run them) of a page's code blocks."""
    text = documents.read(page)
    for found in documents.BLOCK.finditer(text):
        is_shell = found[2] in ("", "sh", "bash")
        yield textwrap.dedent(found[3]), is_shell and not REASON.search(text[: found.start()])


def commands(text):
    """The commands of a block: its lines without comments, if it has any command."""
    lines = [re.sub(r"\s+#.*", "", line).strip() for line in re.sub(r" *\\\n *", " ", text).splitlines()]
    return [line for line in lines if line] if any(COMMAND.match(line) for line in lines) else []


def to_run(page):
    """The commands of a page that have no reason not to be run."""
    return [line for text, runs in blocks(page) if runs for line in commands(text)]


def is_run_elsewhere(line):
    return any(re.match(pattern, line) for pattern in ELSEWHERE)


PAGES = [page for page in documents.tracked("*.md") if any(not is_run_elsewhere(line) for line in to_run(page))]


@pytest.fixture(scope="module")
def untouched(tmp_path_factory):
    """(A copy of the project, the commands that have worked in it): for pages that write no file of their own."""
    return copy_of_project(tmp_path_factory.mktemp("untouched") / "project"), set()


@pytest.mark.parametrize("page", PAGES)
def test_commands_work(page, untouched, tmp_path):
    """Several pages plan the same study, which is done once."""
    project, worked = untouched
    if any(OWN_FILE.match(text) for text, _ in blocks(page)):
        project, worked = copy_of_project(tmp_path / "project"), set()
    variables = {**project.variables, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    for text, runs in blocks(page):
        if own := OWN_FILE.match(text):
            (project.root / own[1]).write_text(text)
        for line in commands(text) if runs else ():
            if is_run_elsewhere(line) or line in worked:
                continue
            assert QUICK.match(line), f"{line}: mark its block with <!-- not run: REASON -->"
            done = called(quick(line), project.root, variables)
            assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
            worked.add(line)


def called(line, folder, variables):
    """The finished process of a command; Snakemake without a shell, in a fork, see `fork_server`."""
    words = shlex.split(line)
    if words[0] == "snakemake" and not set(line) & set("$&|;<>*?~`"):
        return fork_server.run(words[1:], folder, variables, WAIT_S)
    return subprocess.run(
        ["bash", "-c", line], cwd=folder, env=variables, capture_output=True, text=True, timeout=WAIT_S
    )


def quick(line):
    """The command without what takes long: only the plan of a study; no set-up."""
    if line.startswith("make "):
        return line.replace("make ", f"make BIN={BIN} ", 1)
    return f"{line} -n" if line.startswith("snakemake") and not re.search(r" -n\b", line) else line


@pytest.mark.parametrize("pattern", ELSEWHERE)
def test_every_exception_is_used_and_its_test_is_there(pattern):
    assert any(re.match(pattern, line) for page in documents.tracked("*.md") for line in to_run(page))
    assert (ROOT / ELSEWHERE[pattern]).is_file()


def test_commands_are_found():
    assert PAGES
    assert commands("results/<machine>/\n  runs.csv   one row per run\n") == []
    assert commands("make study    # all\nsnakemake -n \\\n  --quiet host\n") == [
        "make study",
        "snakemake -n --quiet host",
    ]


def test_files_that_reasons_name_are_there():
    reasons = [
        why
        for page in documents.tracked("*.md")
        for why in re.findall(r"<!-- not run: ([^>]+) -->", documents.read(page))
    ]
    named = re.findall(r"tests/\S+\.py", " ".join(reasons))
    assert named
    assert [name for name in named if not (ROOT / name).is_file()] == []

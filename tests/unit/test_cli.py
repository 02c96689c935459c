"""The command `study`, its verbs, and the scripts that start commands: help, completion, messages, exit codes."""

import importlib
import os
import subprocess
import sys
import tarfile

import pytest
from click.testing import CliRunner
from tracked import ours

from study.commands import main, options
from study.commands.results import export
from study.contrib.exports.archive import list_workflow_files
from study.core.paths import ROOT, SCRIPTS

EVERY = [(), *((each.name,) for each in main.VERBS), ("completion",)]
STARTING = [path.stem for path in ours(SCRIPTS.glob("*.py")) if "Starts `study.commands" in path.read_text()]


@pytest.fixture
def invoke(monkeypatch):
    monkeypatch.chdir(ROOT)
    return lambda *arguments: CliRunner().invoke(main.study, arguments, prog_name="study", terminal_width=80)


@pytest.mark.parametrize("verb", EVERY, ids=" ".join)
def test_help_fits_on_a_screen_and_names_exit_codes(invoke, verb):
    done = invoke(*verb, "--help")
    lines = done.output.splitlines()
    assert done.exit_code == 0
    assert len(lines) <= 24 and max(map(len, lines)) <= 80
    assert "Exit codes: 0" in done.output or verb == ("completion",)


@pytest.mark.parametrize("name", STARTING)
def test_a_script_starts_the_command_of_its_name_with_help_on_all_options(name):
    (command,) = [each for each in vars(importlib.import_module(name)).values() if isinstance(each, options.Step)]
    assert command.name == name or name == "gpu_check"
    assert command.params or command.commands
    done = CliRunner().invoke(command, ["--help"])
    assert (done.exit_code, [each for each in command.params if each.opts[0] not in done.output.lower()]) == (0, [])


def test_help_of_all_verbs_imports_no_heavy_package():
    line = "import sys, study.commands.main as main; main.study(['--help'], standalone_mode=False); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", line], capture_output=True, text=True, check=True, timeout=60)
    assert "study.commands.analysis" in done.stdout.split()
    assert not {"numpy", "pandas", "snakemake", "jsonschema", "yaml"} & set(done.stdout.split())


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("study sta", "status"),
        ("study status --study smo", "smoke"),
        ("study run smo", "smoke"),
        ("study recommend --goal fas", "fastest"),
        ("study check --acc", "--accept"),
        ("study plan --machine summitd", "summitdev"),
    ],
)
def test_completion(words, expected, monkeypatch):
    monkeypatch.chdir(ROOT)
    variables = {"COMP_WORDS": words, "COMP_CWORD": str(words.count(" ")), "_STUDY_COMPLETE": "bash_complete"}
    done = CliRunner(env=variables).invoke(main.study, [], prog_name="study")
    assert [line.split(",")[1] for line in done.output.splitlines()] == [expected]


def test_completion_scripts_of_three_shells(invoke):
    for shell in main.SHELLS:
        assert "_STUDY_COMPLETE" in invoke("completion", shell).output
    assert invoke("completion", "csh").exit_code == 2


def test_exit_codes_and_names_in_messages():
    """Of the console script itself: 2 for wrong arguments, 1 with one line for an error."""
    for arguments, code, said in (
        (["status", "--bogus"], 2, "error: No such option"),
        (["status", "smok"], 1, "error: there is no config/studies/smok.yaml; did you mean 'smoke'?"),
        (["stat"], 2, "error: there is no verb 'stat'; the verbs are measure, plan, run, status,"),
        (["completion", "tcsh"], 2, "error: Invalid value for '{bash|zsh|fish}': 'tcsh' is not one of"),
        ([], 0, ""),
    ):
        line = [sys.executable, "-c", "from study.commands.main import main; main()", *arguments]
        done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=120)
        assert (done.returncode, said in done.stderr) == (code, True), done.stderr
        assert done.stderr.count("\n") == bool(said), done.stderr
        assert ("Verbs:" in done.stdout) == (not arguments)


def test_an_export_is_the_same_whenever_it_is_made(tmp_path, monkeypatch, capsys):
    folder = tmp_path / "local" / "studies" / "smoke"
    (folder / "tables").mkdir(parents=True)
    (folder / "tables" / "scaling.csv").write_text("gpus\n1\n")
    (folder / "runs.csv").write_text("record\nruns/a/record.json\n")
    (tmp_path / "local" / "runs" / "a").mkdir(parents=True)
    for name in ("record.json", "history.csv", "train.log"):
        (tmp_path / "local" / "runs" / "a" / name).write_text(name)
    made = []
    for number in range(2):
        output = tmp_path / f"{number}.tar.gz"
        line = ["smoke", "--machine", "local", "--results-dir", str(tmp_path), "--output", str(output)]
        export(line, standalone_mode=False)
        made.append(output.read_bytes())
        os.utime(folder / "runs.csv", (1e9, 1e9))
    assert made[0] == made[1]
    assert f"{4 + len(list_workflow_files())} files" in capsys.readouterr().out
    with tarfile.open(tmp_path / "0.tar.gz") as archive:
        assert not any(name.endswith("train.log") for name in archive.getnames())

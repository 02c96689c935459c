"""The command `study`: verbs have the options that their scripts declare, and help fits on a screen."""

import argparse
import hashlib
import importlib
import os
import subprocess
import sys
import tarfile

import export_results
import pytest
from click.testing import CliRunner

from study import cli
from study.contrib.exports.archive import workflow_files
from study.core import script_options
from study.core.errors import StudyError
from study.core.paths import ROOT, SCRIPTS

OF_SCRIPTS = [name for name, verb in cli.VERBS.items() if verb.script and (SCRIPTS / f"{verb.script}.py").is_file()]
EVERY = [(), *((name,) for name in cli.VERBS), ("completion",)]


@pytest.fixture
def invoke(monkeypatch):
    monkeypatch.chdir(ROOT)
    return lambda *arguments: CliRunner().invoke(cli.command, arguments, prog_name="study", terminal_width=80)


@pytest.mark.parametrize("verb", EVERY, ids=" ".join)
def test_help_fits_on_a_screen_and_names_exit_codes(invoke, verb):
    done = invoke(*verb, "--help")
    lines = done.output.splitlines()
    assert done.exit_code == 0
    assert len(lines) <= 24 and max(map(len, lines)) <= 80
    assert "Exit codes: 0" in done.output or verb == ("completion",)


@pytest.mark.parametrize("name", OF_SCRIPTS)
def test_the_options_read_from_the_text_are_those_that_argparse_has(name, monkeypatch):
    """Of the script's own parser, caught as it parses."""
    seen = []

    def caught(self, *_):
        seen.append(self)
        raise KeyboardInterrupt

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", caught)
    monkeypatch.setattr(argparse.ArgumentParser, "parse_known_args", caught)
    script = importlib.import_module(cli.VERBS[name].script)
    with pytest.raises(KeyboardInterrupt):
        script.main()
    declared = {each.name: each for each in script_options.of_script(SCRIPTS / f"{cli.VERBS[name].script}.py").options}
    real = {(each.option_strings or [each.dest])[0]: each for each in seen[0]._actions if each.dest != "help"}
    assert declared.keys() == real.keys() and len(real) >= 2
    assert {key for key, each in declared.items() if each.is_flag} == {
        key for key, each in real.items() if each.nargs == 0
    }


def test_help_of_all_verbs_imports_no_heavy_package():
    line = "import sys, study.cli as cli; cli.command(['--help'], standalone_mode=False); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", line], capture_output=True, text=True, check=True, timeout=60)
    assert "study.cli" in done.stdout.split()
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
    done = CliRunner(env=variables).invoke(cli.command, [], prog_name="study")
    assert [line.split(",")[1] for line in done.output.splitlines()] == [expected]


def test_completion_scripts_of_three_shells(invoke):
    for shell in cli.SHELLS:
        assert "_STUDY_COMPLETE" in invoke("completion", shell).output
    assert invoke("completion", "csh").exit_code == 2


def test_a_folder_without_the_workflow_is_refused_with_where_to_go(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StudyError, match=rf"has no Snakefile and no config: go to {ROOT}, or .*docs/module.md"):
        cli.require_workflow(tmp_path)
    (tmp_path / "config").mkdir()
    cli.require_workflow(tmp_path)
    with pytest.raises(StudyError, match=r"has no Snakefile; write the one of .*docs/module.md"):
        cli.command_line("smoke", None, None, None, (), [])
    (tmp_path / "scripts" / "study").mkdir(parents=True)
    with pytest.raises(StudyError, match=r"is another clone than that of this command, .*use .*\.venv/bin/study"):
        cli.require_workflow(tmp_path)


def test_a_verb_that_reads_results_warns_of_an_environment_of_another_lock(invoke, tmp_path, monkeypatch):
    monkeypatch.setattr(cli, "run_script", lambda *_: None)
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert invoke("status").output == ""
    (tmp_path / "requirements.sha256").write_text("0")
    said = invoke("status").output
    assert said.startswith("warning: the packages in ") and said.endswith("run make setup\n")


def test_the_line_of_snakemake_in_a_folder_of_one_s_own_and_in_the_clone(tmp_path, monkeypatch):
    (tmp_path / "Snakefile").write_text("")
    monkeypatch.chdir(tmp_path)
    line = cli.command_line("mine", None, "local", None, ("keep_versions=true",), ["-n"])[1:]
    default = ["--workflow-profile", str(ROOT / "profiles" / "default")]
    pairs = ["--config", "study=mine", "machine=local", "keep_versions=true"]
    assert line == ["--profile", str(ROOT / "profiles" / "local"), *default, "-n", *pairs]
    monkeypatch.chdir(ROOT)
    target = "results/local/studies/smoke/tables/scaling.md"
    line = cli.command_line(target, None, None, "summit", (), ["--forcerun", "train"])[1:]
    assert line == ["--profile", str(ROOT / "profiles" / "summit"), target, "--forcerun", "train"]
    with pytest.raises(StudyError, match="two studies, smoke and laptop"):
        cli.command_line("smoke", "laptop", None, None, (), [])


def test_a_verb_whose_script_is_not_there_says_so(monkeypatch):
    verb = cli.ScriptCommand("gpu", cli.Verb("", "no_such_script", ""))
    with pytest.raises(StudyError, match=r"study gpu: scripts/no_such_script.py is not in this version"):
        verb.start([])


def test_exit_codes_and_names_in_messages():
    """Of the console script itself: 2 for wrong arguments, 1 with one line for an error."""
    for arguments, code, said in (
        (["status", "--bogus"], 2, "study status: error: unrecognized arguments"),
        (["status", "smok"], 1, "error: there is no config/studies/smok.yaml; did you mean 'smoke'?"),
        (["stat"], 2, "error: there is no verb 'stat'; the verbs are plan, run, status,"),
        (["completion", "tcsh"], 2, "error: Invalid value for '{bash|zsh|fish}': 'tcsh' is not one of"),
        ([], 0, ""),
    ):
        line = [sys.executable, "-c", "from study.cli import main; main()", *arguments]
        done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=120)
        assert (done.returncode, said in done.stderr) == (code, True), done.stderr
        assert "usage:" in done.stderr or done.stderr.count("\n") == bool(said), done.stderr  # argparse's has its usage
        assert ("Verbs:" in done.stdout) == (not arguments)


def test_an_export_is_the_same_whenever_it_is_made_and_has_every_checksum(tmp_path, monkeypatch, capsys):
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
        line = ["export", "smoke", "--machine", "local", "--results-dir", str(tmp_path), "--output", str(output)]
        monkeypatch.setattr(sys, "argv", line)
        export_results.main()
        made.append(output.read_bytes())
        os.utime(folder / "runs.csv", (1e9, 1e9))
    assert made[0] == made[1]
    assert f"{4 + len(workflow_files())} files" in capsys.readouterr().out
    with tarfile.open(tmp_path / "0.tar.gz") as archive:
        files = {each.name.split("/", 1)[1]: archive.extractfile(each).read() for each in archive.getmembers()}
    sums = dict(line.split("  ")[::-1] for line in files.pop("SHA256SUMS").decode().splitlines())
    assert sums == {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    assert "runs/a/history.csv" in sums and "runs/a/train.log" not in sums

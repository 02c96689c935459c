"""No value from a file, a name or a command line reaches a shell unquoted: command lines, in a real shell."""

import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import uuid
from types import SimpleNamespace

import hostile
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from snakemake.utils import QuotedFormatter, SequenceFormatter

from study.core import configuration, validation
from study.core.errors import StudyError
from study.core.paths import ROOT, SCRIPTS
from study.launch import spots
from study.machines import batch_jobs, host_check, queues, remote, run_layout
from study.machines.batch_systems import BATCH_SYSTEMS, Job

PRINT = ["printf", r"%s\0"]
SHARED = [HealthCheck.function_scoped_fixture]  # each example looks at its own output
IN_ONE_FOLDER = settings(max_examples=30, deadline=None, suppress_health_check=SHARED)
FEW = settings(IN_ONE_FOLDER, max_examples=10)  # those that start several processes each
# Fields of the rules' commands that are several words; tests below say of what they consist.
SEVERAL_WORDS = {"params.on_a_node", "params.expected"}
FIELD = re.compile(r"(?<!\{)\{([^{}]+)\}(?!\})")


def commands_of_rules():
    """(file, text) of each rule's shell command."""
    for file in sorted((ROOT / "rules").glob("*.smk")):
        for found in re.finditer(r"\n( +)shell:\n((?:\1 .*\n)+)", file.read_text()):
            yield file.name, found[2]


def test_every_field_of_a_rule_s_command_is_quoted():
    found = [(file, field) for file, text in commands_of_rules() for field in FIELD.findall(text)]
    assert found, "the rules are read"
    assert [each for each in found if not each[1].endswith(":q") and each[1] not in SEVERAL_WORDS] == []


@IN_ONE_FOLDER
@given(values=st.lists(hostile.TEXTS, min_size=1, max_size=3))
def test_snakemake_s_quoted_fields_arrive_as_they_are(values, tmp_path):
    formatter = SequenceFormatter(separator=" ", element_formatter=QuotedFormatter())
    text = formatter.format(r"printf '%s\0' {one:q} {list:q}", one=values[0], list=values)
    assert hostile.words_of(text, tmp_path, "bash") == [values[0], *values]


@pytest.fixture
def site(tmp_path):
    """A folder with the Makefile, whose programs print their arguments: ``site("status", STUDY="x")`` runs make."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    for name in (".venv/bin/python", ".venv/bin/study", "scripts/setup.sh"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("#!/bin/sh\nprintf '%s\\0' \"$@\" >> words\n")
        (tmp_path / name).chmod(0o755)

    def make(target, **given):
        (tmp_path / "words").unlink(missing_ok=True)
        line = ["make", "-s", target, *(f"{name}={value}" for name, value in given.items())]
        done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert not (tmp_path / "touched").exists(), line
        words = (tmp_path / "words").read_text().split("\0")[:-1] if (tmp_path / "words").exists() else []
        return done, words

    return make


@IN_ONE_FOLDER
@given(value=hostile.TEXTS)
def test_a_variable_of_make_is_one_word_or_is_refused(value, site):
    done, words = site("status", STUDY=value, MACHINE="local")
    if "\n" in value.lstrip():
        assert done.returncode != 0 and words == []
        assert len(done.stderr.splitlines()) == 1 and "STUDY must be one line" in done.stderr
        return
    assert done.returncode == 0, done.stderr
    study = [] if not value.strip() else ["--study", value.lstrip()]  # make itself leaves blanks at the begin out
    assert words == ["status", *study, "--machine", "local"]


@pytest.mark.parametrize("value", ["a'b; touch touched", "$(shell touch touched)"])
def test_make_gives_each_program_the_word(value, site):
    assert site("study", STUDY=value)[1][-3:] == ["run", "--study", value]
    assert site("recommend", GOAL=value)[1] == ["recommend", "--goal", value]
    assert site("check", ACCEPT="1")[1][-2:] == ["check", "--accept"]
    for text in (value, "0", "no"):
        refused, words = site("check", ACCEPT=text)
        assert refused.returncode == 2 and words == [] and "write ACCEPT=1, or leave it out" in refused.stderr
    assert site("status", study=value)[0].returncode == 2, "in small letters it is refused, and not read either"


@pytest.mark.parametrize("target", ["status", "report", "recommend", "tune", "check"])
def test_before_the_set_up_one_line_says_so(target, site, tmp_path, monkeypatch):
    (tmp_path / ".venv" / "bin" / "study").unlink()
    monkeypatch.setenv("PATH", "/usr/bin:/bin")  # without an environment that is active
    done, words = site(target)
    assert done.returncode == 2 and words == []
    assert len(done.stderr.splitlines()) == 1 and "run `make setup` first, which makes .venv" in done.stderr


def test_help_of_make_lists_every_target_on_one_screen(site):
    done, _ = site("help")
    listed = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("make ")]
    (phony,) = re.findall(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.M)
    assert set(listed) == set(phony.split()) - {"setup-test", "setup-docs"}
    assert len(done.stdout.splitlines()) <= 34 and max(map(len, done.stdout.splitlines())) <= 120


def test_no_recipe_of_the_makefile_has_a_variable_of_its_command_line_unquoted():
    text = (ROOT / "Makefile").read_text()
    given = re.search(r"^GIVEN := (.*)$", text, re.M)[1].split()
    assert {"STUDY", "MACHINE", "GOAL"} <= set(given)
    recipes = [line for line in text.splitlines() if line.startswith("\t")]
    assert [line for line in recipes for name in given if f"$({name})" in line or f"${{{name}}}" in line] == []
    fixed = {"BIN", "HERE", "BY_FILE"}
    assert {name for line in recipes for name in re.findall(r"\$\((\w+)\)", line)} <= fixed, "add it to GIVEN"


@FEW
@given(folder=hostile.TEXTS, options=st.lists(hostile.TEXTS, max_size=3), session=hostile.TEXTS)
def test_a_job_s_script_works_in_any_folder_with_any_option(folder, options, session, tmp_path, monkeypatch):
    """What the job runs sees the folder, the session and the options; its exit code is written."""
    place = tmp_path / uuid.uuid4().hex / folder.replace("/", "_")
    place.mkdir(parents=True)
    inner = place / "of snakemake.sh"
    inner.write_text('printf \'%s\\0\' "$PWD" "$STUDY_SESSION" "$STUDY_JOB_OPTIONS" > words; exit 3\n')
    with monkeypatch.context() as patch:
        patch.chdir(place)
        patch.setenv("STUDY_SESSION", session)
        job = Job("a", str(place / "job.sh"), str(place / "job.output"), 1, 5, None, tuple(options))
        batch_jobs._write_script(job, inner, "LSB_JOBID")
        done = subprocess.run([str(place / "job.sh")], cwd=tmp_path, timeout=60)
    assert not list(tmp_path.rglob("touched"))
    assert (done.returncode, (place / "exit_code").read_text()) == (3, "3\n")
    words = (place / "words").read_text().split("\0")[:-1]
    assert words == [str(place), session, shlex.join(options)]
    assert queues.read_job({"LSB_JOBID": "1", "STUDY_JOB_OPTIONS": words[2]})["options"] == options


@IN_ONE_FOLDER
@given(account=hostile.TEXTS, options=st.lists(hostile.TEXTS, max_size=3), name=hostile.TEXTS)
def test_submit_lines_are_lists_with_each_value_as_one_word(account, options, name):
    short = batch_jobs._shorten(name)
    assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", short)
    for system in BATCH_SYSTEMS.values():
        line = system().submit_line(Job(short, "/w/job.sh", "/w/job.output", 2, 5, account, tuple(options)))
        for each in (account, *options, short):  # a word of its own, or the value of one option
            assert any(word == each or word.endswith(f"={each}") for word in line)
        assert all(isinstance(each, str) for each in line)


@IN_ONE_FOLDER
@given(text=hostile.TEXTS)
def test_job_ids_have_no_character_of_the_shell(text):
    """Snakemake writes the id into a shell command."""
    for system in BATCH_SYSTEMS.values():
        for answer in (text, f"1.{text}", f"Job <1{text}> is submitted to queue <a>", f"1{text}"):
            found = system().job_id(answer)
            assert found is None or re.fullmatch(r"[A-Za-z0-9.-]+", found)


SLOT = {"rank": 0, "size": 2, "local_rank": 0, "local_size": 1, "cross_rank": 0, "cross_size": 2}


@pytest.fixture(scope="session")
def horovodrun():
    """The functions of scripts/horovodrun.py."""
    return SimpleNamespace(**runpy.run_path(str(SCRIPTS / "horovodrun.py"), run_name="horovodrun"))


@IN_ONE_FOLDER
@given(words=st.lists(hostile.TEXTS, min_size=1, max_size=3), host=hostile.TEXTS)
def test_a_rank_s_command_line(words, host, horovodrun, tmp_path):
    """Horovod gives it to a shell; its own part quotes the program's words."""
    from horovod.runner.gloo_run import get_run_command

    command = get_run_command([*PRINT, *words], "127.0.0.1", ["lo"], 1)
    slot = SimpleNamespace(hostname=host, **SLOT)
    assert hostile.words_of(horovodrun._build_rank_command(command, slot, {}), tmp_path) == words
    shown = get_run_command(["sh", "-c", r'printf "%s\0" "$HOROVOD_HOSTNAME" "$HOROVOD_GLOO_IFACE"'], "", ["eth0"], 1)
    told = hostile.words_of(horovodrun._build_rank_command(shown, slot, {host: "ib0"}), tmp_path)
    assert told == [host, "ib0"]


@pytest.fixture
def elsewhere(tmp_path):
    """The variables with which ``ssh`` is a program that does as ssh: it joins the words for a shell."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "ssh").write_text('#!/bin/sh\nwhile [ "$1" != HOST ]; do shift; done\nshift\nexec sh -c "$*"\n')
    (folder / "ssh").chmod(0o755)
    return {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}


@pytest.mark.slow
@FEW
@given(words=st.lists(hostile.TEXTS, min_size=1, max_size=3), folder=hostile.TEXTS)
def test_a_command_on_another_host(words, folder, horovodrun, elsewhere, tmp_path, monkeypatch):
    """As Horovod builds it, with the working directory, and as strategies build it; through ssh and the guard there."""
    place = tmp_path / uuid.uuid4().hex / folder.replace("/", "_")
    place.mkdir(parents=True)
    command = shlex.join(["sh", "-c", r'printf "%s\0" "$PWD" "$@"', "sh", *words])
    with monkeypatch.context() as patch:
        patch.chdir(place)
        as_horovod_does = shlex.quote(f"cd {os.getcwd()} > /dev/null 2>&1 ; {command}")
        line = horovodrun._build_remote_command(as_horovod_does, "HOST")
        own = shlex.join([*spots.ISOLATED_PYTHON, remote.__file__, "HOST", command])
    for each in (line, own):
        assert hostile.words_of(each, place, variables=elsewhere) == [str(place), *words]
    assert not list(tmp_path.rglob("touched"))


@FEW
@given(folder=hostile.TEXTS, words=st.lists(hostile.TEXTS, min_size=1, max_size=3))
def test_the_check_of_a_host(folder, words, tmp_path, monkeypatch):
    """Whatever the folder of the project is called; ssh gives the text to the shell of the host."""
    place = tmp_path / uuid.uuid4().hex / folder.replace("/", "_")
    place.mkdir(parents=True)
    (place / "probe.py").touch()
    (place / "python").symlink_to(sys.executable)
    with monkeypatch.context() as patch:
        patch.setattr(host_check, "ROOT", place)
        patch.setattr(host_check.probe, "__file__", str(place / "probe.py"))
        patch.setattr(sys, "executable", str(place / "python"))
        command = host_check._make_command([*PRINT, *words])
    assert hostile.words_of(command, tmp_path) == words


@IN_ONE_FOLDER
@given(name=hostile.TEXTS)
def test_names_of_hosts_and_interfaces_are_refused_if_a_shell_would_read_them(name):
    """In a machine's file, and interfaces also as a host tells them: Horovod writes them unquoted on command lines."""
    known = {"a": {"interfaces": {name: ("10.0.0.1", "255.0.0.0")}}}
    told = list(host_check._check_interface("a", known["a"], name))
    if run_layout.INTERFACE.fullmatch(name):
        assert told == [] and shlex.quote(name) in (name, f"'{name}'") and not set(name) & set(" ;$`'\"\\\n|&<>*?~#")
    else:
        assert len(told) == 1 and "unsafe on command lines" in told[0]
    machine = configuration.load_named("machines", "local") | {"hosts": {name: 1}, "interface": name}
    if not re.fullmatch("[A-Za-z0-9]+", name):
        with pytest.raises(StudyError):
            validation.validate(machine, "machines", "m.yaml")


def test_a_line_break_at_the_end_is_part_of_a_name():
    """Python's ``$`` also stands before it; names in configurations reach command lines."""
    for name in ("tiny\n", "-x", "a;b", ""):
        with pytest.raises(StudyError, match="study: "):
            validation.validate({"study": name, "machine": "m", "data_dir": "d", "results_dir": "r"}, "config", "c")
    for folder in ("-x", "a{b}", "", "data\n"):
        with pytest.raises(StudyError, match="data_dir: "):
            validation.validate({"study": "s", "machine": "m", "data_dir": folder, "results_dir": "r"}, "config", "c")

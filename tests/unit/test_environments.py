"""Other environments of Python for the ranks: what is refused, what identifies them, what their runs record."""

import json
import sys
from types import SimpleNamespace

import pandas as pd
import pytest
from examples import expand

from study import plan
from study.core.environment import search_path
from study.experiment import inputs
from study.experiment.study import Study
from study.launch import variables
from study.machines import environments, machine
from study.records import comparable
from study.workflow import start

PACKAGES = {"numpy": "2.0", "pandas": "2.2", "PyYAML": "6", "jsonschema": "4", "tqdm": "4", "torch": "2.4"}
SECOND = {"environment": "second"}
POINT = {"framework": "pytorch", "strategy": "ddp"}


@pytest.fixture(autouse=True)
def asked_anew():
    """A test changes what an environment answers."""
    environments._told.cache_clear()


@pytest.fixture
def made(tmp_path):
    """A function that makes an environment whose Python tells a version and packages; returns the machine's file."""

    def make(packages=PACKAGES, version="3.11.9"):
        answer = json.dumps([version, sorted([name, told] for name, told in packages.items())])
        python = tmp_path / "bin" / "python"
        python.parent.mkdir(exist_ok=True)
        python.write_text(f"#!/bin/sh\necho '{answer}'\n")
        python.chmod(0o755)
        environments._told.cache_clear()
        return {**machine.load("local"), "environments": {"second": str(tmp_path)}}

    return make


def define(run, on):
    return inputs.define(run, on, "data")


def refused(on, **point):
    study = Study("test", "a test", {}, expand(**{**POINT, **point}))
    return [line for line in plan.refused(study, on, {}) if "test.yaml" in line]


def test_a_whole_environment_is_not_refused(made):
    assert refused(made(), environment="second") == []


@pytest.mark.parametrize(
    ("point", "has", "message"),
    [
        ({"environment": "third"}, {}, "the machine's file has no third under environments; it has second"),
        ({}, {"packages": {"torch": "2"}}, "lacks numpy, pandas, pyyaml, jsonschema, tqdm, which ranks of these runs"),
        ({"framework": "tensorflow", "strategy": "horovod"}, {}, "lacks tensorflow, horovod, which ranks"),
        ({}, {"version": "3.9.2"}, "has Python 3.9.2; the ranks need 3.11 or later"),
    ],
)
def test_what_an_environment_lacks_is_refused_in_one_line(made, point, has, message):
    (line,) = refused(made(**has), **{"environment": "second", **point})
    assert message in line


def test_a_prefix_without_python_or_with_a_broken_one_is_refused(made, tmp_path):
    on = made()
    python = tmp_path / "bin" / "python"
    python.write_text("#!/bin/sh\necho broken >&2; exit 3\n")
    assert "does not tell its packages: broken" in refused(on, environment="second")[0]
    python.unlink()
    environments._told.cache_clear()
    assert "bin/python does not exist; give environments.second the prefix" in refused(on, environment="second")[0]


def test_its_packages_identify_a_run_and_its_place_does_not(made, tmp_path):
    (run,) = expand(**POINT, environment="second")
    first = define(run, on=made())
    assert first.machine["environment_of_ranks"]["prefix"] == str(tmp_path)
    assert define(run, on=made({**PACKAGES, "six": "1"})).fingerprint != first.fingerprint
    moved = tmp_path / "moved"
    moved.mkdir()
    on = made()
    (tmp_path / "bin").rename(moved / "bin")
    environments._told.cache_clear()
    assert define(run, on={**on, "environments": {"second": str(moved)}}).fingerprint == first.fingerprint
    (own,) = expand(**POINT)
    assert "environment_of_ranks" not in define(own, on=on).machine
    assert define(own, on=on).fingerprint == define(own, on=machine.load("local")).fingerprint


def test_its_programs_come_first_and_the_sampler_stays(made, tmp_path):
    run = define(expand(**POINT, environment="second")[0], on=made())
    found = variables.of_ranks(run, tmp_path, 900, {"PATH": "/bin"})
    assert found["PATH"] == f"{tmp_path}/bin:{search_path()}"
    assert found["VIRTUAL_ENV"] == str(tmp_path)
    assert found["STUDY_SAMPLER_PYTHON"] == sys.executable
    usual = variables.of_run(define(expand(**POINT)[0], on=machine.load("local")), tmp_path, 900)
    assert not {"PATH", "VIRTUAL_ENV", "STUDY_SAMPLER_PYTHON"} & set(usual)


def test_its_versions_are_recorded(made, tmp_path):
    made(version="3.99.1")  # which this Python is not
    facts = environments.facts(tmp_path)
    assert facts["python"] == "3.99.1"
    assert (facts["packages"]["torch"], facts["packages"]["numpy"]) == ("2.4", "2.0")
    assert len(facts["packages"]["environment"]) == 12
    assert facts["table_parser"] == "fallback"  # the compiled one is for this Python


def test_two_environments_are_compared_and_two_states_of_one_are_not():
    runs = pd.DataFrame({"environment": ["own", "second"], "packages": ["torch 2.13", "torch 2.4"], "block": [1, 1]})
    assert comparable.unlike(runs) is None
    assert comparable.unlike(runs.assign(environment="second")) == "several versions of the libraries"


def test_the_study_s_own_environment_need_not_have_the_framework_of_another(monkeypatch):
    monkeypatch.setattr(start.backends, "missing", lambda framework, strategy: f"{framework} is missing")
    planned = [SimpleNamespace(study=Study("test", "a test", {}, expand(**POINT, **each))) for each in ({}, SECOND)]
    assert [start._missing_frameworks(each) for each in planned] == [["pytorch is missing"], []]

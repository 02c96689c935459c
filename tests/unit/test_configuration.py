"""Every YAML is checked, and a mistake is told with file, line, key and the nearest valid one."""

import re
import shutil

import jsonschema
import pytest
import yaml

from study.core import configuration, validation
from study.core.errors import StudyError
from study.experiment import schemas
from study.machines import machine
from study.records import record
from study.report.figures import description

STUDY = """\
description: a test
datasets:
  nt3:
    source: synthetic
    train_samples: 400
    test_samples: 100
    features: 120
    seed: 2019
runs:
  - {benchmark: nt3, scaling: strong, epochs: 8, gpus: [1, 2, 4], loader: read_csv}
tables: [scaling, icpp2019_table2]
"""


OF_FILES = sorted(path.name.split(".")[0] for path in (configuration.CONFIG / "schemas").iterdir())
SCHEMAS = {"benchmarks": validation.read_schema("benchmarks"), "studies": schemas.build_study_schema(),
           "machines": machine.make_schema()}  # fmt: skip


@pytest.mark.parametrize(
    "schema", [*map(validation.read_schema, OF_FILES), *SCHEMAS.values(), record.schema(), description.make_schema()]
)
def test_schemas_are_schemas(schema):
    jsonschema.Draft202012Validator.check_schema(schema)


@pytest.mark.parametrize(
    "schema",
    sorted([*(configuration.CONFIG / "schemas").iterdir(), *(configuration.CONFIG / "fields").iterdir()]),
    ids=lambda path: path.name,
)
def test_no_description_is_cut_at_a_comma(schema):
    # An unquoted comma inside braces ends a YAML value, and the rest of it becomes a key without a value.
    def cut(node):
        if isinstance(node, dict):
            return [key for key, value in node.items() if value is None] + [k for v in node.values() for k in cut(v)]
        return [key for each in node for key in cut(each)] if isinstance(node, list) else []

    assert cut(yaml.safe_load(schema.read_text())) == []


def test_a_machine_has_what_its_base_has_but_its_own():
    theta, flat = (configuration.load_named("machines", name) for name in ("theta", "theta_flat"))
    assert {key for key in theta if theta[key] != flat[key]} == {"description", "study", "memory_mode", "job_options"}
    assert "base" not in flat
    assert machine.load("theta_flat")["base"] == "theta"


@pytest.fixture
def machines(tmp_path, monkeypatch):
    """A function that writes a machine's file beside the shipped ones."""
    shutil.copytree(configuration.CONFIG / "machines", tmp_path / "machines")
    monkeypatch.setattr(validation, "ROOT", tmp_path)
    validation.read_schema("machines")
    monkeypatch.setattr(configuration, "CONFIG", tmp_path)
    monkeypatch.chdir(tmp_path)
    return lambda text: (tmp_path / "machines" / "mine.yaml").write_text(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("base: theta\ndescription: x\npower_model: {idle_w: 50, peak_w: 9}\n", "peak_w: 9 is below idle_w, 50"),
        ('base: theta\ndescription: x\nenvironment: {A: "x\\0y"}\n', "environment.A"),
        ("base: theta\ndescription: x\nenvironment: {HOROVOD_TIMELINE: t}\n", "use the grid key trace"),
        ("base: local\ndescription: x\nqueue: {most_jobs: 1}\n", "the key 'queue' needs the key 'scheduler' too"),
        (
            "description: x\nbase: local\ninterface:\n  eth0\n",
            "interface: has no effect without hosts and without a scheduler; add hosts, or leave it out",
        ),
        (
            "description: x\nbase: theta\ninterface: {nid1: ipogif0}\n",
            "interface: the batch system chooses the hosts; give one name, which all of them have",
        ),
        (
            "base: local\ndescription: x\nhosts: [a, b]\n",
            "line 3: hosts: ['a', 'b']: expected {name: slots}, such as {a: 1, b: 1}, or the path of a host file",
        ),
        ("base: local\ndescription: x\nhosts: {a: 0}\n", "line 3: hosts.a: 0 is less than the minimum of 1"),
        ("base: local\ndescription: x\nenvironment: {a: b}\n", "'a': expected a variable of upper-case letters"),
    ],
)
def test_a_machine_whose_keys_do_not_agree_is_told(machines, text, words):
    machines(text)
    with pytest.raises(StudyError, match=rf"machines/mine.yaml: .*{re.escape(words)}"):
        machine.load("mine")


def broken(tmp_path, old, new, text=STUDY, kind="studies"):
    assert old in text
    path = tmp_path / "broken.yaml"
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(StudyError) as error:
        validation.load_valid_yaml(path, SCHEMAS[kind])
    assert "\n" not in str(error.value)
    assert "broken.yaml" in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("scaling: strong", "scalling: strong", ["runs[0].scalling", "unknown key", "did you mean 'scaling'?"]),
        ("scaling: strong", "scaling: storng", ["runs[0].scaling", "did you mean 'strong'?"]),
        ("loader: read_csv}", "loader: read_cvs}", ["runs[0].loader", "did you mean 'read_csv'?"]),
        ("gpus: [1, 2, 4]", "gpus: [1, 0, 4]", ["runs[0].gpus"]),
        ("gpus: [1, 2, 4]", "gpus: two", ["runs[0].gpus"]),
        ("gpus: [1, 2, 4]", "gpus: 2.0", ["runs[0].gpus"]),
        ("epochs: 8", "epochs: 8.0", ["runs[0].epochs"]),
        ("gpus: [1, 2, 4]", "gpus: [1, 1]", ["runs[0].gpus", "has a value twice"]),
        ("  - {benchmark: nt3, scaling: strong,", "  - {scaling: strong,", ["runs[0]", "'benchmark' is missing"]),
        ("source: synthetic", "source: syntetic", ["datasets.nt3.source", "did you mean 'synthetic'?"]),
        ("features: 120", "featurs: 120", ["datasets.nt3", "featurs", "did you mean 'features'?"]),
        ("tables:", "tabels:", ["tabels", "did you mean 'tables'?"]),
        ("seed: 2019", "seed: 2019\n    seed: 1", ["'seed' is given twice"]),
        ("seed: 2019", "seed: '1e3'", ["seed", "'1e3' is a text; write a number such as"]),
        ("seed: 2019", "seed: 2019\n    2019: 1", ["the key 2019 is not a text; put it in quotes"]),
        ("scaling: strong", "scaling: strong, trace: 1", ["line 10: runs[0].trace: 1: expected true or false"]),
        ("  nt3:", "  NT-3:", ["'NT-3': expected a name of lower-case letters, digits and _"]),
        ("description:", "description: [", ["not valid YAML"]),
    ],
)
def test_a_mistake_in_a_study(tmp_path, old, new, words):
    message = broken(tmp_path, old, new)
    for word in words:
        assert word in message


def test_a_folder_of_the_user_s_goes_before_the_repository(tmp_path, monkeypatch):
    """As where the workflow is used as a module."""
    own = tmp_path / "config" / "machines"
    own.mkdir(parents=True)
    (own / "mine.yaml").write_text("base: local\ndescription: mine\n")
    (own / "local.yaml").write_text((configuration.CONFIG / "machines" / "local_mpi.yaml").read_text())
    (tmp_path / "config" / "config.yaml").write_text("study: s\nmachine: m\ndata_dir: d\nresults_dir: r\n")
    everywhere = set(configuration.list_files("machines"))
    monkeypatch.chdir(tmp_path)
    assert set(configuration.list_files("machines")) == {*everywhere, "mine"}
    assert configuration.list_files("machines")["local"] == own / "local.yaml"
    assert configuration.load_settings()["study"] == "s"
    assert configuration.find_own_folder() == tmp_path / "config"
    with pytest.raises(StudyError, match="^config/machines/mine.yaml: base: local has a base itself"):
        machine.load("mine")


def test_the_study_of_a_machine(tmp_path, monkeypatch):
    """Its own or its base's; without one, and for a machine whose file is elsewhere, the default study."""
    papers = {"summit": "icpp2019", "theta": "icpp2019_theta", "theta_flat": "sc18_flat"}
    for name in (*papers, "theta_debug", "local", "local_mpi", "perlmutter", "polaris", "not here"):
        assert configuration.choose_default_study(name)[0] == papers.get(name, "laptop")
    machines = tmp_path / "config" / "machines"
    machines.mkdir(parents=True)
    (machines / "mine.yaml").write_text("base: summit\ndescription: mine\n")
    (machines / "wrong.yaml").write_text("base: summit\ndescription: mine\nstudy: icpp2020\n")
    monkeypatch.chdir(tmp_path)
    assert configuration.choose_default_study("mine") == ("icpp2019", "config/machines/mine.yaml chose it")
    with pytest.raises(StudyError, match="wrong.yaml: study: there is no config/studies/icpp2020.yaml; did you mean"):
        configuration.choose_default_study("wrong")

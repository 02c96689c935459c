"""The digest of the code changes with what a script imports, and with nothing else."""

import pytest
from tracked import ours

from study.core import code_version
from study.data.images.formats import FORMATS
from study.data.loaders import LOADERS as LOADERS_KNOWN
from study.instruments.power.sensors import SENSORS


def forget():
    code_version.digest_code.cache_clear()
    code_version._read_source.cache_clear()


@pytest.fixture
def scripts(tmp_path, monkeypatch):
    files = {
        "run.py": "from study import a\nimport json\n",
        "study/__init__.py": "",
        "study/a.py": "def f():\n    from study.deep import b\n",
        "study/deep/__init__.py": "",
        "study/deep/b.py": "from study.deep import fast\nX = 1\n",
        "study/deep/fast.cpp": "int x = 1;\n",
        "study/other.py": "Y = 1\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(code_version, "SCRIPTS", tmp_path)
    forget()
    yield tmp_path
    forget()


@pytest.mark.parametrize(
    ("changed", "entries", "same"),
    [
        ("run.py", ["run.py"], False),
        ("study/a.py", ["run.py"], False),
        ("study/deep/b.py", ["run.py"], False),
        ("study/deep/fast.cpp", ["run.py"], False),
        ("study/other.py", ["run.py"], True),
        ("study/other.py", ["run.py", "study.other"], False),
    ],
)
def test_digest(scripts, changed, entries, same):
    before = code_version.digest_code(*entries)
    (scripts / changed).write_text((scripts / changed).read_text() + "Z = 1\n")
    forget()
    assert (code_version.digest_code(*entries) == before) is same


@pytest.mark.parametrize(
    ("changed", "same"),
    [
        ("backends/one/__init__.py", False),
        ("backends/other/__init__.py", True),
        ("workloads/wave/__init__.py", False),
        ("workloads/wave/one.py", False),
        ("workloads/wave/other.py", True),
        ("workloads/tide/__init__.py", True),
        ("workloads/tide/one.py", True),
    ],
)
def test_the_code_of_a_run_is_that_of_its_framework_and_workload(scripts, monkeypatch, changed, same):
    for folder in ("backends/one", "backends/other", "workloads/wave", "workloads/tide"):
        (scripts / "study" / folder).mkdir(parents=True)
    for name in ("workloads/wave/one.py", "workloads/wave/other.py", "workloads/tide/one.py"):
        (scripts / "study" / name).write_text("")
    for name in ("backends/one", "backends/other", "workloads/wave", "workloads/tide"):
        (scripts / "study" / name / "__init__.py").write_text("")
    monkeypatch.setattr(code_version, "RUN_ENTRIES", ("run.py",))
    before = code_version.digest_training_code("wave", framework="one")
    (scripts / "study" / changed).write_text("Z = 1\n")
    forget()
    assert (code_version.digest_training_code("wave", framework="one") == before) is same


@pytest.mark.parametrize("words", ["# a comment\n", "\n\n", '"""A docstring."""\n'])
def test_words_change_no_digest(scripts, words):
    before = code_version.digest_code("run.py")
    (scripts / "study" / "a.py").write_text(words + (scripts / "study" / "a.py").read_text())
    forget()
    assert code_version.digest_code("run.py") == before


@pytest.fixture
def registered(scripts):
    """Loaders in one module, where one calls another, and sensors in one module each."""
    for name, text in {
        "study/core/registry.py": "",
        "study/data/loaders.py": LOADERS,
        "study/data/images/formats.py": "",
        "study/instruments/power/sensors/__init__.py": (
            "from study.core.registry import import_submodules\nimport_submodules(__name__)\n"
        ),
        "study/instruments/power/sensors/rapl.py": SENSOR.format("rapl"),
        "study/instruments/power/sensors/nvml.py": SENSOR.format("nvml"),
        "study/fast.py": "Y = 1\n",
    }.items():
        (scripts / name).parent.mkdir(parents=True, exist_ok=True)
        (scripts / name).write_text(text)
    (scripts / "run.py").write_text("import study.data.loaders, study.instruments.power.sensors\n")
    forget()
    return scripts / "study"


LOADERS = """
def _loader(name, **more):
    return lambda function: function

@_loader("slow", reads="raw")
def slow(path):
    return 1

@_loader("twice", reads="raw")
def twice(path):
    return 2 * slow(path)

@_loader("fast", reads="raw")
def fast(path):
    from study import fast
    return fast.load(path)
"""
SENSOR = """
from study.instruments.power.readings import SENSORS
UNIT = 1
@SENSORS.register("{}")
def find():
    return []
"""


def codes(loader):
    forget()
    return code_version.digest_code("run.py", used=frozenset()), code_version.digest_loader_and_sensors(
        loader, ["rapl"]
    )


def test_a_new_loader_or_sensor_changes_no_run_s_code(registered):
    """Adding one to the library leaves finished runs current."""
    before = codes("slow")
    (registered / "instruments/power/sensors/own.py").write_text(SENSOR.format("own"))
    loaders = registered / "data/loaders.py"
    loaders.write_text(loaders.read_text() + '@_loader("own", reads="raw")\ndef own(path):\n    return slow(path)\n')
    assert codes("slow") == before
    assert code_version.digest_loader_and_sensors("own", ["own"]) != before[1]


@pytest.mark.parametrize(
    ("file", "old", "new", "loaders"),
    [
        ("instruments/power/sensors/rapl.py", "UNIT = 1", "UNIT = 2", {"slow", "twice", "fast"}),
        ("instruments/power/sensors/rapl.py", "return []", "return [1]", {"slow", "twice", "fast"}),
        ("instruments/power/sensors/nvml.py", "return []", "return [1]", set()),
        ("data/loaders.py", "return 1", "return 3", {"slow", "twice"}),
        ("data/loaders.py", "return 2 *", "return 3 *", {"twice"}),
        ("fast.py", "Y = 1", "Y = 2", {"fast"}),
    ],
)
def test_a_changed_loader_or_sensor_changes_the_code_of_runs_that_use_it(registered, file, old, new, loaders):
    """And that alone: runs with other loaders are compared by the rest."""
    before = {name: codes(name) for name in ("slow", "twice", "fast")}
    path = registered / file
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    assert {name for name, (rest, own) in before.items() if codes(name)[1] != own} == loaders
    assert {codes(name)[0] for name in before} == {rest for rest, _ in before.values()}


def test_what_loaders_share_is_in_both_codes(registered):
    before, path = codes("slow"), registered / "data/loaders.py"
    path.write_text(path.read_text() + "Z = 1\n")
    assert all(one != other for one, other in zip(codes("slow"), before, strict=True))


@pytest.mark.slow
def test_every_loader_format_and_sensor_is_found_by_how_it_is_registered():
    """Else a new way of registering would put all of them back into every run's code."""
    forget()
    known = {
        part.registered
        for path in ours((code_version.SCRIPTS / "study").rglob("*.py"))
        for part in code_version._read_source(path).parts
        if path.parent.name != "commands"
    }
    assert known == {name for name, each in LOADERS_KNOWN.items() if each.reads != "format"} | {*FORMATS, *SENSORS}


@pytest.mark.parametrize("name", ["make_table", "check"])
def test_the_code_of_a_step_is_its_own_and_what_it_imports(name):
    found = covered(f"{name}.py", used=frozenset({name}))
    assert {each.split()[1] for each in found if each.startswith("study/commands/") and " " in each} == {name}
    assert not [each for each in found if each.startswith(("study/report/page", "study/contrib", "study/workflow"))]


NT3 = ("study.backends.tensorflow.backend", "study.workloads.nt3", "study.workloads.nt3.tensorflow")


def covered(*entries, used=None):
    """The files whose change changes a digest, and what is registered in them."""
    found = {}
    for entry in entries:
        if entry.endswith(".py"):
            code_version._collect_file(code_version.SCRIPTS / entry, found, used)
        else:
            code_version._collect_module(entry, found, used)
    return set(found)


def test_a_run_s_code_is_what_can_change_its_numbers():
    """The training process, the sampler's process with its sensors, and what starts and times the ranks."""
    used = frozenset({"dask", "cray"})
    found = covered(*code_version.RUN_ENTRIES, *NT3, used=used)
    assert "study/instruments/power/sensors/occ.py" not in found
    assert {
        "study/instruments/power/sensors/cray.py",
        "study/instruments/power/sensors/cray.py find",
        "study/data/loaders.py load_by_dask",
        "train.py",
        "sample_power.py",
        "study/training/rank.py",
        "study/data/loaders.py",
        "study/instruments/power/sampler.py",
        "study/launch/supervision.py",
        "study/machines/launchers.py",
        "study/workloads/nt3/tensorflow.py",
        "study/workloads/tensorflow.py",
    } <= found
    assert len(code_version.digest_training_code("nt3", framework="tensorflow")) == 12


def test_a_run_s_code_is_nothing_else():
    """Neither planning, tables nor declarations, another benchmark's model, nor what judges power readings."""
    found = covered(*code_version.RUN_ENTRIES, *NT3)
    for part in ("study/report", "study/records", "study/plan", "study/machines/queues", "study/machines/batch_jobs",
                 "study/machines/batch_systems", "study/experiment/parameter", "study/experiment/study",
                 "study/experiment/expansion", "study/experiment/inputs", "study/workloads/p1b", "study/launch/failure",
                 "study/instruments/power/plausibility", "study/instruments/power/energy",
                 "study/core/configuration"):  # fmt: skip
        assert not [name for name in found if name.startswith(part)], part


def test_declarations_are_in_no_digest():
    for entry in ("update_records", "collect_records", "make_table", "make_figure", "make_report"):
        found = covered(f"{entry}.py", used=frozenset({entry}))
        assert not [name for name in found if name.startswith("study/experiment/parameters/")], entry
    assert "study/experiment/parameter.py" in covered("make_table.py"), "how they are used is"


def test_counts_of_operations_are_in_the_tables_digests_and_not_in_a_run_s():
    assert "study/workloads/p1b3/operations.py" in covered("collect_records.py", used=frozenset({"collect_records"}))
    found = covered(*code_version.RUN_ENTRIES, "study.workloads.nt3")
    assert not [name for name in found if name.startswith("study/workloads/") and name.endswith("operations.py")]

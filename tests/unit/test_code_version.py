"""The digest of the code changes with what a script imports, and with nothing else."""

import pytest

from study.core import code_version


def forget():
    code_version.digest.cache_clear()
    code_version._source.cache_clear()


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
    before = code_version.digest(*entries)
    (scripts / changed).write_text((scripts / changed).read_text() + "Z = 1\n")
    forget()
    assert (code_version.digest(*entries) == before) is same


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
    monkeypatch.setattr(code_version, "RUN", ("run.py",))
    before = code_version.training_code("wave", framework="one")
    (scripts / "study" / changed).write_text("Z = 1\n")
    forget()
    assert (code_version.training_code("wave", framework="one") == before) is same


@pytest.mark.parametrize("words", ["# a comment\n", "\n\n", '"""A docstring."""\n'])
def test_words_change_no_digest(scripts, words):
    before = code_version.digest("run.py")
    (scripts / "study" / "a.py").write_text(words + (scripts / "study" / "a.py").read_text())
    forget()
    assert code_version.digest("run.py") == before


NT3 = ("study.backends.tensorflow.backend", "study.workloads.nt3", "study.workloads.nt3.tensorflow")


def covered(*entries):
    """The files whose change changes a digest."""
    found = {}
    for entry in entries:
        collect = code_version._collect_module if not entry.endswith(".py") else None
        collect(entry, found) if collect else code_version._collect(code_version.SCRIPTS / entry, found)
    return set(found)


def test_a_run_s_code_is_what_can_change_its_numbers():
    """The training process, the sampler's process with every sensor, and what starts and times the ranks."""
    found = covered(*code_version.RUN, *NT3)
    folder = "study/instruments/power/sensors"
    sensors = {f"{folder}/{path.name}" for path in (code_version.SCRIPTS / folder).glob("*.py")}
    assert len(sensors) > 5
    assert (
        sensors
        | {
            "train.py",
            "sample_power.py",
            "horovodrun.py",
            "study/training/rank.py",
            "study/communication/collectives.py",
            "study/training/staging.py",
            "study/data/loaders.py",
            "study/data/samples.py",
            "study/experiment/definition.py",
            "study/instruments/phases.py",
            "study/instruments/power/sampler.py",
            "study/machines/guard.py",
            "study/machines/remote.py",
            "study/launch/supervision.py",
            "study/launch/variables.py",
            "study/machines/launchers.py",
            "study/workloads/nt3/__init__.py",
            "study/workloads/nt3/tensorflow.py",
            "study/workloads/tensorflow.py",
        }
        <= found
    )
    assert len(code_version.training_code("nt3", framework="tensorflow")) == 12


def test_a_run_s_code_is_nothing_else():
    """Neither planning, tables nor declarations, nor another benchmark's model."""
    found = covered(*code_version.RUN, *NT3)
    for part in ("study/report", "study/records", "study/plan", "study/machines/queues", "study/machines/packing",
                 "study/machines/batch_systems", "study/experiment/parameter", "study/experiment/study",
                 "study/experiment/expansion", "study/experiment/inputs", "study/workloads/p1b", "study/launch/failure",
                 "study/core/configuration"):  # fmt: skip
        assert not [name for name in found if name.startswith(part)], part


def test_declarations_are_in_no_digest():
    for entry in ("make_record.py", "collect_records.py", "make_table.py", "make_figure.py", "make_report.py"):
        assert not [name for name in covered(entry) if name.startswith("study/experiment/parameters/")], entry
    assert "study/experiment/parameter.py" in covered("make_table.py"), "how they are used is"


def test_a_package_that_imports_all_its_modules_is_covered_whole():
    assert {"study/report/papers/sc18/tables.py", "study/report/tables/staging.py"} <= covered("make_table.py")


def test_modules_of_each_part_are_covered(scripts):
    """``submodule("study.parts", name, "count")`` may import the module ``count`` of any part, and no other module."""
    (scripts / "study" / "a.py").write_text('def f(part):\n    return submodule("study.parts", part, "count")\n')
    for name in ("one/count.py", "one/other.py", "two/count.py"):
        (scripts / "study" / "parts" / name).parent.mkdir(parents=True, exist_ok=True)
        (scripts / "study" / "parts" / name).write_text("")
    found = {name for name in covered("run.py") if "parts" in name}
    assert found == {"study/parts/one/count.py", "study/parts/two/count.py"}


def test_counts_of_operations_are_in_the_tables_digests_and_not_in_a_run_s():
    assert "study/workloads/p1b3/operations.py" in covered("collect_records.py")
    assert not [name for name in covered(*code_version.RUN, "study.workloads.nt3") if name.endswith("operations.py")]

"""Workloads: where their modules are found, and that what is independent of a framework imports none."""

import subprocess
import sys

import pytest
from tracked import ours

from study import workloads
from study.core.errors import StudyError
from study.core.paths import SCRIPTS

FOLDER = SCRIPTS / "study" / "workloads"
FRAMEWORKS = {"tensorflow", "tf_keras", "keras", "horovod"}
OWN = """
from study.workloads import base

class Benchmark(base.Benchmark):
    metric_names = ("mae",)
    def synthetic_blocks(self, file, shape, seed):
        return []
    def arrange(self, tables, seed):
        return None
    def build_model(self, shape):
        return shape
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    """``own(text)``: the name of a benchmark whose single module has this text."""
    monkeypatch.setattr(workloads, "__path__", [*workloads.__path__, str(tmp_path)])

    def write(text, name="absent"):
        (tmp_path / f"{name}.py").write_text(text)
        return name

    yield write
    for name in [name for name in sys.modules if name.startswith("study.workloads.absent")]:
        del sys.modules[name]


def test_an_own_model_may_be_one_module(own):
    name = own(OWN)
    assert workloads.load_workload(name, {"a": 1}).spec == {"a": 1}
    benchmark = workloads.load_benchmark(name, {})
    assert benchmark.build_model((3,)) == (3,)
    assert benchmark.metrics() == ["mae"]
    assert workloads.locate_module(name) == "scripts/study/workloads/absent.py"


def test_a_single_module_names_its_framework(own):
    name = own(OWN)
    assert workloads.explain_missing_model(name, "tensorflow") is None
    assert (
        workloads.explain_missing_model(name, "pytorch")
        == "absent has a model in tensorflow only; give framework: tensorflow"
    )
    with pytest.raises(StudyError, match="absent.yaml: absent has a model in tensorflow only"):
        workloads.load_benchmark(name, {}, "pytorch")


@pytest.mark.slow
def test_data_of_a_workload_load_no_framework():
    """Neither a workload nor a model's shared modules, which a user's own module imports in the plan."""
    names = [path.parent.name for path in ours(FOLDER.glob("*/tensorflow.py"))]
    lines = ["import sys", *(f"import study.workloads.{name}" for name in names),
             "import study.workloads.tensorflow, study.workloads.images.tensorflow",
             f"assert not {FRAMEWORKS!r} & set(sys.modules)"]  # fmt: skip
    subprocess.run([sys.executable, "-c", "\n".join(lines)], check=True, cwd=SCRIPTS)

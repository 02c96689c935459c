"""Thousands of broken configurations: each is refused with one line that names the file, and none with a traceback."""

import copy
import functools
import os
import shutil
from pathlib import Path

import damage
import hypothesis.strategies as st
import pytest
import yaml
from hypothesis import HealthCheck, given, settings

from study import plan
from study.core import configuration, validation
from study.core.errors import StudyError
from study.experiment import expansion
from study.machines import launchers, machine, queues

SHIPPED = configuration.CONFIG
KINDS = {
    "studies": ["laptop", "smoke", "timeline", "icpp2019", "prostate", "sc18", "images"],
    "machines": ["local", "summit", "theta", "theta_flat", "polaris_prod", "frontier"],
    "benchmarks": ["nt3", "p1b1", "p1b2", "p1b3"],
}
FAST_DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
# A study of each benchmark, in each mode of the paper's study, which has hundreds of runs.
MODES = {"nt3": ["strong", "weak"], "p1b1": ["strong", "weak"], "p1b2": ["strong", "weak"],
         "p1b3": ["batch, batch_scaling: [linear, square_root, cubic_root]"]}  # fmt: skip
EXAMPLES = {"studies": 80, "machines": 45, "benchmarks": 50}  # of each


@pytest.fixture(scope="module")
def own_config(tmp_path_factory):
    """A copy of config/ that the code reads instead; a text that it has parsed once is not parsed again."""
    root = tmp_path_factory.mktemp("broken")
    shutil.copytree(SHIPPED, root / "config")
    before = validation.ROOT, configuration.CONFIG, Path.cwd()
    validation.ROOT, configuration.CONFIG = root, root / "config"
    os.chdir(root)
    with pytest.MonkeyPatch.context() as patch:
        parsed = functools.cache(validation._parse_once)

        def again(*given):
            tree, content = parsed(*given)
            return tree, copy.deepcopy(content)

        patch.setattr(validation, "_parse_once", again)
        yield root / "config"
    validation.ROOT, configuration.CONFIG, folder = before
    os.chdir(folder)


def use(kind, name):
    """What reading the file leads to before anything is started."""
    if kind == "studies":
        study = expansion.load_study(name, machine.load("local"))
        plan.check_results(study)
        plan.check_files(study)
    elif kind == "machines":
        on = machine.load(name)
        for ranks in (1, 6, 384):
            launchers.refuse_ranks(ranks, on) or queues.refuse_run(queues.Timed(ranks, on["time_limit_s"]), on)
        plan.summarize(expansion.load_study("smoke"), on)
    else:
        expansion.load_study(f"of_{name}")


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, names in KINDS.items() for name in names])
def test_a_broken_file_is_one_line_of_error(own_config, kind, name):
    for benchmark, modes in MODES.items():
        runs = [f"{{benchmark: {benchmark}, scaling: {mode}, gpus: [1, 6], loader: [read_csv, npy]}}" for mode in modes]
        (own_config / "studies" / f"of_{benchmark}.yaml").write_text(
            f"description: a test\ndatasets: {{{benchmark}: {{source: url}}}}\nruns: [{', '.join(runs)}]\n"
            f"loading: [{{benchmark: {benchmark}, loader: [read_csv, npy], repeats: 1}}]\ntables: [scaling]\n"
        )
    seen = {"refused": 0, "taken": 0}
    path, shipped = own_config / kind / f"{name}.yaml", (SHIPPED / kind / f"{name}.yaml").read_bytes()
    documents = damage.yaml_documents(yaml.safe_load(shipped), lambda value: yaml.dump(value, Dumper=FAST_DUMPER))
    broken = documents | damage.cut(shipped, damage.YAML_PIECES)

    @settings(max_examples=EXAMPLES[kind], deadline=None, database=None, derandomize=True,
              suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])  # fmt: skip
    @given(st.data())
    def refuse(data):
        path.write_bytes(data.draw(broken))
        try:
            use(kind, name)
            seen["taken"] += 1
        except StudyError as error:
            seen["refused"] += 1
            message = str(error)
            assert "\n" not in message and len(message) < 1500, message
            assert f"{kind}/{name}.yaml" in message or (kind == "benchmarks" and "studies/" in message), message
        finally:
            path.write_bytes(shipped)

    refuse()
    assert seen["refused"] + seen["taken"] >= EXAMPLES[kind]
    assert seen["refused"] > 0.4 * EXAMPLES[kind], f"too few were broken to mean anything: {seen}"

"""Thousands of broken configurations: each is refused with one line that names the file, and none with a traceback."""

import copy
import datetime
import functools
import math
import os
import shutil
from pathlib import Path

import hypothesis.strategies as st
import pytest
import yaml
from damage import places
from hypothesis import HealthCheck, given, settings

from study import plan
from study.core import checked, configuration
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
EXAMPLES = {"studies": 200, "machines": 100, "benchmarks": 125}  # of each
ODD = st.sampled_from(
    [None, True, False, "", " ", "x" * 3000, "../../etc/passwd", "a; rm -rf /", "$(id)", "Ω\n\t", "none", "nt3", -1, 0,
     1, 7, 2.0, 2.5, 10**9, 10**400, -(10**18), math.nan, math.inf, [], [[]], [1, 1], [None], {}, {"a": 1}, {"": []},
     b"\xff\x00", datetime.date(2019, 8, 5), [1, "two", 3.0], {"benchmark": "nt3"}, "NaN", "1e3", "0x10", "yes"]
)  # fmt: skip


@st.composite
def changed_contents(draw, content):
    """A document with one to three changes of its values, keys or lists, as YAML."""
    content = copy.deepcopy(content)
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from([each for each in places(content) if each]))
        parent = content
        for key in path[:-1]:
            parent = parent[key]
        change, last = draw(st.sampled_from(["replace", "delete", "rename", "add", "wrap", "repeat"])), path[-1]
        if change == "delete":
            del parent[last]
        elif change == "wrap":
            parent[last] = [parent[last]]
        elif change == "repeat" and isinstance(parent, list):
            parent.append(parent[last])
        elif change == "rename" and isinstance(parent, dict):
            parent[draw(st.sampled_from([f"{last}s", str(last)[1:], "unknown", 3, None]))] = parent.pop(last)
        elif change == "add" and isinstance(parent, dict):
            parent[draw(st.sampled_from(["unknown", "base", "path", "trace", "queue"]))] = copy.deepcopy(draw(ODD))
        else:
            parent[last] = copy.deepcopy(draw(ODD))
        if not any(True for _ in places(content) if _):
            break
    return yaml.dump(content, Dumper=FAST_DUMPER, allow_unicode=True).encode()


@st.composite
def changed_texts(draw, text):
    """A document with a piece of its text taken out, doubled, or replaced."""
    begin = draw(st.integers(0, len(text)))
    end = min(len(text), begin + draw(st.integers(0, 40)))
    piece = draw(
        st.sampled_from(
            [b"", b"\t", b"\xff", b"\x00", b"&a [*a]", b"? [1]\n: 2\n", b"- ", b": ", b"{", b"]", b"<<: *x", b"#"]
        )
    )
    return text[:begin] + draw(st.sampled_from([piece, text[begin:end] * 2])) + text[end:]


@pytest.fixture(scope="module")
def own_config(tmp_path_factory):
    """A copy of config/ that the code reads instead; a text that it has parsed once is not parsed again."""
    root = tmp_path_factory.mktemp("broken")
    shutil.copytree(SHIPPED, root / "config")
    before = checked.ROOT, configuration.CONFIG, Path.cwd()
    checked.ROOT, configuration.CONFIG = root, root / "config"
    os.chdir(root)
    with pytest.MonkeyPatch.context() as patch:
        parsed = functools.cache(checked._parsed)

        def again(*given):
            tree, content = parsed(*given)
            return tree, copy.deepcopy(content)

        patch.setattr(checked, "_parsed", again)
        yield root / "config"
    checked.ROOT, configuration.CONFIG, folder = before
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
            launchers.refuse_ranks(ranks, on) or queues.refuse_run(queues.Timed(ranks, on["time_limit_s"]), on, {})
        queues.advise_components([queues.Timed(ranks, on["time_limit_s"]) for ranks in (1, 384)], on, {})
        plan.summary(expansion.load_study("smoke"), on, {})
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
    content = yaml.safe_load(shipped)

    @settings(max_examples=EXAMPLES[kind], deadline=None, database=None, derandomize=True,
              suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])  # fmt: skip
    @given(st.data())
    def refuse(data):
        broken = data.draw(st.one_of(changed_contents(content), changed_texts(shipped)))
        path.write_bytes(broken)
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


def test_there_are_two_thousand_of_them():
    assert sum(EXAMPLES[kind] * len(names) for kind, names in KINDS.items()) >= 2000

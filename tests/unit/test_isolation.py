"""What the user's shell and home hold steers no process that measures; what a site needs is kept and recorded."""

import json
import os
import site
import subprocess
import sys

import pandas as pd
import pytest

from study.compare import likeness
from study.core import environment, isolation, user_cache
from study.core.errors import StudyError
from study.core.paths import SCRIPTS
from study.machines import machine


@pytest.mark.parametrize(
    "name",
    ["PYTHONPATH", "PYTHONHOME", "PYTHONHASHSEED", "PYTHONOPTIMIZE", "PYTHONMALLOC", "PYTHONWARNINGS", "KERAS_BACKEND",
     "POLARS_MAX_THREADS", "ARROW_IO_THREADS", "DASK_NUM_WORKERS", "NUMBA_NUM_THREADS", "MALLOC_ARENA_MAX",
     "LC_NUMERIC", "OMP_NUM_THREADS", "NPY_DISABLE_CPU_FEATURES", "PANDAS_COPY_ON_WRITE", "JSIMD_FORCENONE",
     "GLIBC_TUNABLES", "CUDA_LAUNCH_BLOCKING", "GRPC_POLL_STRATEGY", "RAYON_NUM_THREADS", "NCCL_CONF_FILE",
     "MIOPEN_FIND_MODE", "ROCBLAS_INTERNAL_FP16_ALT_IMPL", "ITEX_FP32_MATH_MODE", "CUDA_DEVICE_MAX_CONNECTIONS",
     "MIMALLOC_LARGE_OS_PAGES", "PILLOW_BLOCK_SIZE", "JAX_ENABLE_X64", "ACCELERATE_MIXED_PRECISION", "PET_MAX_RESTARTS",
     "TORCHELASTIC_USE_AGENT_STORE"],
)  # fmt: skip
def test_a_variable_that_steers_is_cleared_for_every_process_that_measures(name):
    assert name not in environment.build_measuring_environment({name: "/elsewhere"})


def test_jobs_get_nothing_that_steers(monkeypatch):
    kept = dict(os.environ)
    monkeypatch.setattr(os, "environ", {**kept, "ARROW_IO_THREADS": "1", "LC_NUMERIC": "de_DE", "PYTHONHASHSEED": "0"})
    environment.prepare_for_jobs(None, True)
    assert not {"ARROW_IO_THREADS", "LC_NUMERIC", "PYTHONHASHSEED"} & set(os.environ)
    assert os.environ["PYTHONNOUSERSITE"] == "1"


def test_foreign_folders_are_named_with_the_remedy(tmp_path, monkeypatch):
    assert isolation.find_problems({"PYTHONPATH": f"{SCRIPTS}:{tmp_path / 'none'}:{sys.prefix}/lib"}) == []
    assert isolation.find_problems({}) == isolation.find_problems({"PYTHONPATH": ""}) == []
    (said,) = isolation.find_problems({"PYTHONPATH": f"{SCRIPTS}:{tmp_path}"})
    assert said == f"PYTHONPATH: {tmp_path} goes before the packages of {sys.prefix}; unset PYTHONPATH"
    monkeypatch.chdir(tmp_path)  # an empty entry is the folder one works in
    assert isolation.find_problems({"PYTHONPATH": f":{SCRIPTS}"}) == [said]
    assert "unset PYTHONHOME" in isolation.find_problems({"PYTHONHOME": "/usr"})[0]


def test_a_link_to_the_library_s_own_folder_is_its_own(tmp_path):
    (tmp_path / "link").symlink_to(SCRIPTS)
    assert isolation.find_problems({"PYTHONPATH": str(tmp_path / "link")}) == []


def test_packages_of_the_home(tmp_path, monkeypatch):
    monkeypatch.setattr(site, "getusersitepackages", lambda: str(tmp_path / "site-packages"))
    assert isolation.find_problems({}, has_user_site=True) == []
    (tmp_path / "site-packages" / "numpy").mkdir(parents=True)
    assert isolation.find_problems({}, has_user_site=False) == []
    assert "export PYTHONNOUSERSITE=1" in isolation.find_problems({}, has_user_site=True)[0]


@pytest.fixture
def broken_pandas(tmp_path):
    """A folder of another Python's packages."""
    (tmp_path / "foreign" / "pandas").mkdir(parents=True)
    (tmp_path / "foreign" / "pandas" / "__init__.py").write_text("raise ImportError('of another Python')")
    return tmp_path / "foreign"


@pytest.mark.parametrize(("name", "code"), [("snakemake", 1), ("other", 0)])
def test_a_snakemake_of_the_environment_ends_before_it_imports_foreign_packages(tmp_path, broken_pandas, name, code):
    """As its executor plugins import pandas; Python reads the file as it reads those of its own packages."""
    isolation.install(tmp_path)
    program = tmp_path / name
    program.write_text(f"import site; site.addsitedir({str(tmp_path)!r}); print('planning')")
    variables = {**os.environ, "PYTHONPATH": f"{SCRIPTS}:{broken_pandas}"}
    done = subprocess.run([sys.executable, str(program)], env=variables, capture_output=True, text=True)
    assert done.returncode == code
    assert (done.stdout, done.stderr.count("\n")) == (("", 1) if code else ("planning\n", 0))
    assert not code or done.stderr.endswith("; unset PYTHONPATH\n")


NO_FOLDER = "/dev/null/home"  # also for root


@pytest.mark.parametrize("variable", ["HOME", user_cache.VARIABLE])
def test_a_home_that_cannot_be_written_leaves_snakemake_a_cache_in_its_state(tmp_path, monkeypatch, capsys, variable):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv(user_cache.VARIABLE, raising=False)
    user_cache.provide_user_cache()
    assert user_cache.VARIABLE not in os.environ and not (tmp_path / ".snakemake").exists()
    monkeypatch.setenv(variable, NO_FOLDER)
    user_cache.provide_user_cache()
    assert os.environ[user_cache.VARIABLE] == str(tmp_path / ".snakemake" / "cache")
    assert capsys.readouterr().err.endswith(": Not a directory; caches are kept in .snakemake/cache\n")
    user_cache.provide_user_cache()
    assert capsys.readouterr().err == "", "jobs inherit it"


def test_no_place_for_caches_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setenv(user_cache.VARIABLE, NO_FOLDER)
    program = tmp_path / "snakemake"
    program.write_text(f"import site; site.addsitedir({str(tmp_path)!r}); print('planning')")
    isolation.install(tmp_path)
    (tmp_path / ".snakemake").write_text("no folder")
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert done.stderr.startswith(f"error: {NO_FOLDER}: Not a directory, so that Snakemake cannot keep its cache")


PACKAGES, IDLE = "ranks use this Python's own packages", "has no effect: each run sets it itself"


@pytest.mark.parametrize(
    ("name", "why"),
    [("PYTHONPATH", PACKAGES), ("PYTHONHOME", PACKAGES), ("PYTHONNOUSERSITE", IDLE), ("KERAS_HOME", IDLE)],
)
def test_a_machine_s_file_brings_in_no_packages(name, why):
    with pytest.raises(StudyError, match=f"environment: {name}: {why}"):
        machine._check_environment({name: "/somewhere"})


def test_what_is_kept_is_recorded(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(environment, "FILES", ("~/.nccl.conf", "~/.openmpi/mca-params.conf"))
    (tmp_path / ".nccl.conf").write_text("# ours\nNCCL_ALGO=Ring\n\n")
    variables = environment.build_measuring_environment(
        {"LD_PRELOAD": "/lib/jemalloc.so", "UCX_TLS": "tcp", "HOME": "x"}
    )
    assert environment.collect_steering(variables) == {
        "LD_LIBRARY_PATH": "", "LD_PRELOAD": "/lib/jemalloc.so", "UCX_TLS": "tcp", "~/.nccl.conf": "NCCL_ALGO=Ring",
    }  # fmt: skip


def test_a_priority_that_ranks_inherit_is_recorded():
    """``nice snakemake``: other programs of the machine then go first."""
    code = "from study.core import environment; print(environment.collect_steering({}).get('nice'))"
    line = [sys.executable, "-c", f"import os; os.nice(7); {code}"]
    assert subprocess.run(line, capture_output=True, text=True, check=True).stdout == "7\n"
    unset = {"LD_LIBRARY_PATH": "", "LD_PRELOAD": ""}
    assert likeness.describe_difference(runs(unset, {**unset, "nice": "7"})) == likeness.STEERING


def runs(*steering):
    return pd.DataFrame({"steering": [json.dumps(each) for each in steering]})


def test_records_of_earlier_versions_did_not_tell_preloaded_libraries():
    """They stay comparable with new ones; what they told counts as before."""
    now = {"LD_LIBRARY_PATH": "/opt/lib", "LD_PRELOAD": "", "OMP_NUM_THREADS": "1", "UCX_TLS": "tcp"}
    assert likeness.describe_difference(runs({"OMP_NUM_THREADS": "1"}, now)) is None
    assert likeness.describe_difference(runs({"OMP_NUM_THREADS": "2"}, now)) == likeness.STEERING

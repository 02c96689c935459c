"""Every batch job starts a Snakemake of its own: what it imports is paid once a run."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest
from examples import expand

from study.core.paths import ROOT
from study.instruments import disturbance

HEAVY = ["dask", "h5py", "horovod", "keras", "lmdb", "matplotlib", "psutil", "pynvml", "scipy", "tensorflow"]
LAYOUT = "from study.report.tables.layout import Table"


def imported(statements, names=HEAVY):
    """Which of the heavy packages, or of other ``names``, ``statements`` import."""
    program = f"{statements}\nimport sys\nprint(*[name for name in {names} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT / "scripts", capture_output=True, text=True, check=True
    )
    return done.stdout.split()


ANALYSIS = ["study.plan", "study.prediction", "study.records", "study.report"]


def imports(*rules):
    """What files of rules import from the library, whatever is planned."""
    texts = [(ROOT / "rules" / f"{name}.smk").read_text(encoding="utf-8") for name in rules]
    return "\n".join(re.findall(r"^from study[\w.]* import (?:\([^)]*\)|.*)$", "\n".join(texts), re.MULTILINE))


@pytest.mark.slow
def test_the_rules_import_nothing_heavy():
    statements = imports(*sorted(path.stem for path in (ROOT / "rules").glob("*.smk")))
    assert "study.workflow" in statements and "study.report" in statements
    assert imported(f"{statements}\nfrom study.workflow import workflow_plan, start") == []


@pytest.mark.slow
def test_a_batch_job_imports_nothing_for_the_analysis():
    statements = imports("common", "loading", "training")
    assert imported(statements, ANALYSIS) == []
    assert imported(f"{statements}\nfrom study.workflow import workflow_plan", ANALYSIS) == ANALYSIS, (
        "and this would see it"
    )


def test_horovod_has_what_we_replace():
    """Else the first step would be slow again without a word."""
    source = Path(importlib.util.find_spec("horovod.tensorflow").origin).read_text(encoding="utf-8")
    assert "return _make_subgraph(allreduce_grads)" in source


@pytest.mark.slow
def test_a_rank_s_communication_needs_no_keras_3():
    """Horovod's module for Keras imports it, and Matplotlib with it: most of a second of each rank."""
    source = (ROOT / "scripts" / "study" / "backends" / "tensorflow" / "horovod.py").read_text(encoding="utf-8")
    imports = "\n".join(re.findall(r"^ +((?:from|import) [\w. ,]+)$", source, re.MULTILINE))
    assert "horovod._keras" in imports
    found = imported(f"import os\nos.environ['TF_USE_LEGACY_KERAS'] = '1'\n{imports}")
    assert "tensorflow" in found
    assert not {"keras", "matplotlib"} & set(found)


@pytest.mark.slow
def test_a_table_is_written_without_matplotlib():
    """Of which pandas needs half a second to write LaTeX, in the process of each table."""
    made = "Table('t', 'caption', pd.DataFrame({'a': [1]}), ['a'])"
    statements = f"import tempfile\nfrom pathlib import Path\nimport pandas as pd\n{LAYOUT}"
    assert imported(f"{statements}\n{made}.write_to(Path(tempfile.mkdtemp()))") == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "program, further",
    [("train", []), ("launch_training", []), ("run_command", ["numpy"]),
     ("sample_power", ["numpy", "yaml", "jsonschema"]), ("run_processes", ["numpy", "yaml", "jsonschema"])],
)  # fmt: skip
def test_what_runs_beside_the_ranks_imports_little(program, further):
    """Each run pays for it: of a rank, its launch, the process of a command, the node's sampler, and the launcher."""
    names = [*HEAVY, "pandas", "pyarrow", "fastjsonschema", *further]
    assert imported(f"import {program}", names) == []
    assert imported("import pandas", names), "and this test would see it"


TELEMETRY = (
    "wall_ns,monotonic_ns,host,sensor,kind,device,power_w,energy_j\n"
    "1795780000123456789,15000000000,n1,rapl,package,0,,1.5\n1795780001123456789,16000000000,n1,rapl,package,0,,2\n"
)


@pytest.mark.slow
def test_a_record_is_made_without_pandas(make_run):
    """It is made at the end of each run, before the next one may begin."""
    folder = make_run(expand()[0])
    row = [
        1795780000123456789,
        16 * 10**9,
        "n9",
        0.5,
        2,
        0.9,
        0.2,
        *[0.0] * 8,
        2400.0,
        "cc1plus 0.40",
        *[""] * 6,
        0.0,
        "",
    ]
    (folder / disturbance.FILE).write_text("\n".join([",".join(disturbance.COLUMNS), ",".join(map(str, row))]) + "\n")
    (folder / "telemetry.csv").write_text(TELEMETRY)
    statements = f"from study.records.renewal import make\nmade = make({str(folder)!r})"
    assert (
        imported(
            f"{statements}\nassert made['training'] and made['background']", ["pandas", "pyarrow", "fastjsonschema"]
        )
        == []
    )


@pytest.mark.slow
def test_no_step_but_training_imports_tensorflow():
    steps = ["launch_training", "cluster", "collect_records", "update_records", "make_table"]
    assert "tensorflow" not in imported("\n".join(f"import {step}" for step in steps))
    assert "h5py" in imported("import h5py"), "and this test would see it"

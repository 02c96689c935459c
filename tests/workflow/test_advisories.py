"""scripts/advisories.sh with a stand-in for pip-audit: what it says of each end. The real one needs the network."""

import subprocess

import pytest
from project import ROOT

# A python whose environments have a pip and a pip-audit that do as the test says.
PYTHON = """#!/bin/sh
mkdir -p "$3/bin"
printf '#!/bin/sh\\n%s\\n' '{pip}' > "$3/bin/pip"
printf '#!/bin/sh\\nfor last; do case "$previous" in --output) found=$last;; esac; previous=$last; done\\n%s\\n' \\
  '{audit}' > "$3/bin/pip-audit"
chmod +x "$3/bin/pip" "$3/bin/pip-audit"
"""


@pytest.mark.parametrize(
    ("pip", "audit", "code", "words"),
    [
        (
            "exit 0",
            "exit 0",
            0,
            ["none is known of the packages in envs/requirements.lock envs/horovod.lock envs/test.lock envs/docs.lock"],
        ),
        ("exit 0", "echo idna 3.4 PYSEC-1 > $found; exit 1", 1, ["idna 3.4 PYSEC-1"]),
        ("exit 0", "echo Traceback; echo no route; exit 1", 2, ["needs the network, and PyPI itself", ": no route"]),
        ("echo no index; exit 1", "exit 0", 2, ["pip-audit cannot be installed, which needs the network: no index"]),
    ],
)
def test_each_end_is_one_line(tmp_path, pip, audit, code, words):
    python = tmp_path / "python"
    python.write_text(PYTHON.format(pip=pip, audit=audit))
    python.chmod(0o755)
    line = ["env", f"PYTHON={python}", "scripts/advisories.sh"]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == code, done.stderr
    told = (done.stdout + done.stderr).splitlines()
    assert len(told) == 1 and all(word in told[0] for word in words)

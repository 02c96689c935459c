"""Pack the wheels that the studies of gpu_check.py need beyond PyTorch and NumPy, for a machine without network.

Run it where there is a network, with the minor version of Python and the kind of processor that the other machine has.
"""

import argparse
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from study.core.errors import StudyError, exit_with_message
from study.core.files import written_aside
from study.core.paths import ROOT

ASKED, LOCK = ROOT / "envs" / "gpu.in", ROOT / "envs" / "requirements.lock"
GIVEN = "numpy"  # comes with PyTorch; another version would take its place
LIST = "requirements.txt"
OLDEST, NEWEST = (3, 11), (3, 13)
MOST_MB = 60
MB = 1e6
# Folders that no study uses: test suites, and solvers for a scheduler of Snakemake that is not used.
DROPPED = ("tests", "solverdir")


def main() -> None:
    """Read the command line and pack."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", default="wheels", help="a new folder, wheels by default")
    folder = Path(parser.parse_args().output)
    if not OLDEST <= sys.version_info[:2] <= NEWEST:
        raise StudyError(f"this is Python {sys.version.split()[0]}; run it with 3.11, 3.12 or 3.13")
    if folder.exists() and any(folder.iterdir()):
        raise StudyError(f"--output: {folder} is not empty; name a new folder")
    folder.mkdir(parents=True, exist_ok=True)
    names = asked()
    with tempfile.TemporaryDirectory() as made:
        _make_wheels(Path(made), names)
        for wheel in sorted(Path(made).glob("*.whl")):
            if not wheel.name.startswith(f"{GIVEN}-"):
                slim(wheel, folder / wheel.name)
    (folder / LIST).write_text("".join(f"{name}\n" for name in names), encoding="utf-8")
    _tell(folder)


def asked() -> list[str]:
    """The names of the packages in envs/gpu.in."""
    lines = (line.split("#")[0].strip() for line in ASKED.read_text(encoding="utf-8").splitlines())
    return [line for line in lines if line]


def constraints() -> list[str]:
    """The locked version of each package, but of `GIVEN`."""
    found = re.findall(r"^([a-zA-Z0-9._-]+==[^\s;]+)", LOCK.read_text(encoding="utf-8"), re.MULTILINE)
    return [each for each in found if not each.startswith(f"{GIVEN}==")]


def _make_wheels(folder: Path, names: list[str]) -> None:
    """Have pip download wheels, and build those that are not to be had; raises `StudyError` with its last line."""
    versions = folder / "constraints.txt"
    versions.write_text("\n".join(constraints()), encoding="utf-8")
    line = [sys.executable, "-m", "pip", "wheel", "--quiet", "--wheel-dir", str(folder), "--constraint", str(versions)]
    done = subprocess.run([*line, *names], capture_output=True, text=True, check=False)
    if done.returncode:
        told = [each for each in done.stderr.splitlines() if each.strip()]
        raise StudyError(f"pip could not make the wheels: {(told or ['it printed nothing'])[-1]}")


def slim(wheel: Path, to: Path) -> None:
    """Copy a wheel without the folders `DROPPED`, also in its list of files."""
    with zipfile.ZipFile(wheel) as read:
        kept = [each for each in read.infolist() if not is_dropped(each.filename)]
        with written_aside(to) as aside, zipfile.ZipFile(aside, "w", zipfile.ZIP_DEFLATED) as written:
            for each in kept:
                content = read.read(each)
                if each.filename.endswith(".dist-info/RECORD"):
                    lines = content.decode().splitlines(keepends=True)
                    content = "".join(line for line in lines if not is_dropped(line.split(",")[0])).encode()
                written.writestr(each, content, zipfile.ZIP_DEFLATED)


def is_dropped(name: str) -> bool:
    """Whether a file of a wheel is left out."""
    return bool(set(DROPPED) & set(name.split("/")[:-1]))


def _tell(folder: Path) -> None:
    wheels = list(folder.glob("*.whl"))
    megabytes = sum(each.stat().st_size for each in wheels) / MB
    if megabytes > MOST_MB:
        raise StudyError(f"{folder}: its {len(wheels)} wheels have {megabytes:.1f} MB, expected at most {MOST_MB} MB")
    python = ".".join(map(str, sys.version_info[:2]))
    print(f"{folder}: {len(wheels)} wheels, {megabytes:.1f} MB, for Python {python}. On the other machine:")
    print(f"  pip install --no-index -f {folder.name} -r {folder.name}/{LIST}")


if __name__ == "__main__":
    exit_with_message(main)

"""The container trains: the steps of envs/container.def in a Debian made here, and the study `smoke` in it.

No container runtime is needed. debootstrap makes the root folder in place of the image that the definition starts
from, and unshare(1) and pivot_root(8) start it as runtimes do: with namespaces of its own, as a user whom the image
does not list, and with a host name that does not resolve.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys

import pandas as pd
import pytest
from project import ROOT, copy_of_project

PROGRAMS = ("debootstrap", "unshare", "pivot_root", "setpriv")
MISSING = [name for name in PROGRAMS if not shutil.which(name)]
BASE = "ca-certificates python3.11 python3.11-dev python3.11-venv"  # what the image that the definition names has
USER = 12345
BUILD_S, STUDY_S = 1800, 900
SENT = re.compile(r"(?i)(pip_.*|.*_proxy|ssl_.*|requests_ca_bundle|horovod_.*)")

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(bool(MISSING) or os.geteuid() != 0, reason=f"needs root, and {', '.join(MISSING or PROGRAMS)}"),
]
# Runs "$@" in the root folder $1, with the folders after it, up to --, of this host visible there.
START = """
set -e
root=$1; shift
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mount --rbind /dev "$root/dev"
while [ "$1" != -- ]; do mkdir -p "$root$1"; mount --rbind "$1" "$root$1"; shift; done
shift
hostname image-without-entry
cd "$root"; mkdir -p old; pivot_root . old; umount -l old
exec "$@"
"""


def section(name):
    """The lines of a section of the definition."""
    text = (ROOT / "envs" / "container.def").read_text()
    return re.search(rf"^%{name}\n(.*?)(?=^%|\Z)", text, re.MULTILINE | re.DOTALL)[1]


def pip_s_folders():
    """Folders of this host from which its pip takes packages, so that the image's pip may too."""
    told = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True).stdout
    found = [*re.findall(r"(?:file://)?(/[^\s']+)", told), *os.environ.get("PIP_FIND_LINKS", "").split()]
    return sorted({path for path in found if os.path.isdir(path)})


class Image:
    """A root folder, in which commands run as in a container."""

    def __init__(self, root):
        self.root, self.folders = root, pip_s_folders()

    def run(self, script, *arguments, user=0, folder="/", seconds=BUILD_S):
        """Run lines of a shell; returns what they print."""
        drop = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"] if user else []
        sent = [f"{name}={value}" for name, value in os.environ.items() if SENT.fullmatch(name)]
        inside = ["env", "-i", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", *sent, *drop]
        shell = ["sh", "-ec", f"cd {shlex.quote(folder)}\n{script}", "sh", *arguments]
        line = ["unshare", "--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child", "sh", "-c", START, "sh"]
        done = subprocess.run(
            [*line, self.root, *self.folders, "--", *inside, *shell],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=seconds,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-4000:]
        return done.stdout


def has_network(root, *files):
    """Give the image this host's way into the network."""
    for file in filter(os.path.exists, files):
        shutil.copy(file, f"{root}{file}")


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    """The image of the definition."""
    root = tmp_path_factory.mktemp("image")
    subprocess.run(
        ["debootstrap", "--variant=minbase", "bookworm", root],
        check=True, stdout=subprocess.DEVNULL, timeout=BUILD_S,
    )  # fmt: skip
    root.chmod(0o755)
    has_network(root, "/etc/resolv.conf", "/etc/hosts")
    copy_of_project(root / "opt" / "study")
    made = Image(root)
    made.run(f"apt-get update && apt-get install -y --no-install-recommends {BASE}")
    has_network(root, "/etc/pip.conf", "/etc/ssl/certs/ca-certificates.crt")
    made.run(section("post"))
    yield made
    shutil.rmtree(root)


def test_the_container_trains(image):
    """As a user of another number, whose folder gets data/ and results/."""
    folder = image.root / "home" / "work"
    folder.mkdir()
    os.chown(folder, USER, USER)
    line = ["--profile", "/opt/study/profiles/local", "--config", "study=smoke"]
    neither = "if getent hosts image-without-entry || id -un; then echo it is known; exit 1; fi\n"
    image.run(
        f"{neither}{section('environment')}{section('runscript')}",
        *line, user=USER, folder="/home/work", seconds=STUDY_S,
    )  # fmt: skip
    made = folder / "results" / "local" / "studies" / "smoke"
    runs = pd.read_csv(made / "runs.csv")
    assert runs["status"].tolist() == ["ok"] * 4
    assert runs["gpus"].tolist() == [2] * 4
    assert (made / "report.html").stat().st_size > 0

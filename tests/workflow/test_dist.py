"""scripts/dist.sh: the archive has what is committed, and the same commit gives the same bytes."""

import shutil
import subprocess
import tarfile

from project import ROOT


def test_the_archive_has_the_committed_files_and_its_checksum(tmp_path):
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "dist.sh", tmp_path / "scripts")
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "some"\nversion = "1.2"\n')
    (tmp_path / ".gitignore").write_text("dist/\n")
    git = ["git", "-C", tmp_path, "-c", "user.name=x", "-c", "user.email=x@x"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "all"]):
        subprocess.run([*git, *words], check=True)

    def dist():
        return subprocess.run([tmp_path / "scripts" / "dist.sh"], capture_output=True, text=True)

    assert dist().returncode == 0
    archive = tmp_path / "dist" / "some-1.2.tar.gz"
    first = archive.read_bytes()
    with tarfile.open(archive) as opened:
        names = opened.getnames()
    assert {"some-1.2/pyproject.toml", "some-1.2/scripts/dist.sh"} < set(names) and "some-1.2/dist" not in names
    checked = subprocess.run(["sha256sum", "--check", "--quiet", f"{archive.name}.sha256"], cwd=archive.parent)
    assert checked.returncode == 0
    assert dist().returncode == 0 and archive.read_bytes() == first
    (tmp_path / "new").touch()
    refused = dist()
    assert refused.returncode == 1 and refused.stderr.startswith("dist: error: there are changes")

"""scripts/dist.sh: the archive has what is committed, the same commit gives the same bytes, and a tag must fit."""

import shutil
import subprocess
import tarfile

from project import ROOT


def test_the_archive_has_the_committed_files_and_its_checksum(tmp_path):
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "dist.sh", tmp_path / "scripts")
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "some"\nversion = "1.2"\n')
    (tmp_path / ".gitignore").write_text("dist/\n")
    changes = tmp_path / "CHANGELOG.md"
    changes.write_text("# Changelog\n\n## 1.2 - unreleased\n\n- New.\n\n## 1.1 - 2020-01-01\n\n- Old.\n")
    git = ["git", "-C", tmp_path, "-c", "user.name=x", "-c", "user.email=x@x"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "all"]):
        subprocess.run([*git, *words], check=True)

    def dist(*tag):
        return subprocess.run([tmp_path / "scripts" / "dist.sh", *tag], capture_output=True, text=True)

    assert dist().returncode == 0
    archive = tmp_path / "dist" / "some-1.2.tar.gz"
    first = archive.read_bytes()
    with tarfile.open(archive) as opened:
        names = opened.getnames()
    assert {"some-1.2/pyproject.toml", "some-1.2/scripts/dist.sh"} < set(names) and "some-1.2/dist" not in names
    checked = subprocess.run(["sha256sum", "--check", "--quiet", f"{archive.name}.sha256"], cwd=archive.parent)
    assert checked.returncode == 0
    assert dist().returncode == 0 and archive.read_bytes() == first
    assert (tmp_path / "dist" / "some-1.2.notes.md").read_text() == "- New.\n\n"
    assert "expected v1.2" in dist("v1.3").stderr
    assert "is not of the last commit" in dist("v1.2").stderr
    subprocess.run([*git, "tag", "v1.2"], check=True)
    assert "1.2 is unreleased" in dist("v1.2").stderr
    changes.write_text(changes.read_text().replace("unreleased", "2021-01-01"))
    for words in (["commit", "-qam", "date"], ["tag", "-f", "v1.2"]):
        subprocess.run([*git, *words], check=True, capture_output=True)
    released = dist("v1.2")
    assert released.returncode == 0, released.stderr
    (tmp_path / "new").touch()
    refused = dist()
    assert refused.returncode == 1 and refused.stderr.startswith("dist: error: there are changes")

"""The documentation site: it builds without warnings, its links hold, and it loads nothing from the network."""

import re
import subprocess
import sys

import pytest
from project import ROOT

LOADED = re.compile(r"""<(?:script|img|iframe|source)\b[^>]*\ssrc="(https?:)?//|<link\b[^>]*\shref="(https?:)?//""")
IN_STYLE = re.compile(r"""(?:@import|url\()\s*["']?(?:https?:)?//""")


def built(source, target, *options):
    """The finished build of pages in ``source``, with warnings as errors."""
    line = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", *options, source, target]
    return subprocess.run(line, cwd=ROOT, capture_output=True, text=True)


def test_the_site_builds_and_needs_no_network(tmp_path):
    done = built("docs", tmp_path / "html")
    assert done.returncode == 0, done.stderr
    pages = list((tmp_path / "html").rglob("*.html"))
    assert pages
    assert [page for page in pages if LOADED.search(page.read_text(encoding="utf-8"))] == []
    assert [sheet for sheet in (tmp_path / "html").rglob("*.css") if IN_STYLE.search(sheet.read_text())] == []
    method = (tmp_path / "html" / "method.html").read_text(encoding="utf-8")
    assert "<svg" in method
    assert "flowchart LR" not in method
    assert "1.0.0" in (tmp_path / "html" / "changelog.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[a](page.md) [b](#anchor) ![c](image.svg)", ["'page.md'", "'anchor'", "image.svg"]),
        ("```mermaid\nflowchart LR\n  a ==> b\n```", ["not understood"]),
    ],
)
def test_what_leads_nowhere_ends_the_build(tmp_path, text, words):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text(f"# Title\n\n{text}\n")
    done = built(tmp_path / "docs", tmp_path / "html", "-c", ROOT / "docs")
    assert done.returncode != 0
    assert [word for word in words if word not in done.stderr] == []


def test_what_would_be_loaded_is_found():
    assert LOADED.search('<script async src="https://a.b/c.js">')
    assert LOADED.search('<link rel="stylesheet" href="//a.b/c.css">')
    assert not LOADED.search('<a href="https://a.b">')
    assert IN_STYLE.search("@import url(https://a.b)")

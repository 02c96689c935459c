"""Pages of the site that are files elsewhere in the repository, such as the changelog.

In docs/ each has a stub for readers on GitHub. The site shows the file itself. Links are rewritten in both directions:
in the file they are relative to its own folder, and pages link to the file and not to its stub.
"""

import os
import re
from pathlib import Path, PurePosixPath

from sphinx.application import Sphinx

PAGES = {  # page: file of the repository
    "readme": "README.md",
    "changelog": "CHANGELOG.md",
    "contributing": "CONTRIBUTING.md",
    "measurements": "performance/results.md",
}
LINK = re.compile(r"(\]\()([^)\s#]+)([^)\s]*\))")


def rebased(text: str, place: PurePosixPath, page: PurePosixPath) -> str:
    """``text`` with its relative links as seen from a page. place, page: the folders of both in the repository."""

    def link(match: re.Match[str]) -> str:
        if "://" in match[2]:
            return match[0]
        target = os.path.normpath(place / match[2])
        stubs = {file: f"docs/{name}.md" for name, file in PAGES.items()}
        return match[1] + os.path.relpath(stubs.get(target, target), page) + match[3]

    return LINK.sub(link, text)


def show(app: Sphinx, page: str, source: list[str]) -> None:
    """Put a file in place of its stub, and make all links lead to pages of the site."""
    file = PAGES.get(page, f"docs/{page}.md")
    text = (Path(app.srcdir).parent / file).read_text(encoding="utf-8")
    if page in PAGES:
        app.env.note_dependency(str(Path(app.srcdir).parent / file))
    source[0] = rebased(text, PurePosixPath(file).parent, PurePosixPath("docs", page).parent)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx."""
    app.connect("source-read", show)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

"""Configuration of the documentation site (make docs)."""

import sys
import tomllib
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY / "docs" / "site"))

project = "CANDLE scaling study"
author = copyright = "the maintainers of this project"  # noqa: A001 (Sphinx's name)
release = version = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["version"]

extensions = ["myst_parser", "flowchart", "repository_pages"]
exclude_patterns = ["_build"]
templates_path: list[str] = []

myst_heading_anchors = 4  # the anchors that GitHub makes too
myst_enable_extensions = ["colon_fence"]

html_theme = "furo"
html_title = f"{project} {release}"
html_static_path = ["site/static"]
html_extra_path = ["schemas"]  # for editors, see docs/extending.md
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_copy_source = False
html_show_sourcelink = False
# Code blocks are commands, file trees and messages; only those that name a language are highlighted.
highlight_language = "none"

nitpicky = True
linkcheck_timeout = 20
linkcheck_retries = 2

"""The page's templates, styles and scripts, and DataTables, which sorts and filters tables, from the itables wheel."""

import base64
import hashlib
import importlib.resources

import jinja2
from markupsafe import Markup

from study.report.page.files import TEMPLATES

ENDS_SCRIPT = ("</script", "<!--")  # in a script's text, these would end it or change how it is read


def make_environment() -> jinja2.Environment:
    """Make Jinja's environment, which escapes every text that it inserts and refuses unknown names."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def load_style() -> Markup:
    """Load the style sheets: that of DataTables, then our own."""
    return Markup(_read_bundled("dt_bundle.css") + _read_own("style.css"))  # noqa: S704  # files of ours and of the wheel


def load_script() -> Markup:
    """Load our script."""
    return Markup(_read_own("report.js"))  # noqa: S704  # a file of ours


def make_content_policy() -> str:
    """Make the page's content security policy: nothing is fetched, no script runs but ours and DataTables."""
    digest = base64.b64encode(hashlib.sha256(load_script().encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest}' blob:; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def load_library() -> Markup:
    """Load DataTables, as text that our script runs."""
    text = _read_bundled("dt_bundle.js")
    for words in ENDS_SCRIPT:  # in strings and regular expressions, a backslash before "/" and "!" changes nothing
        text = text.replace(words, words[0] + "\\" + words[1:])
    return Markup(text)  # noqa: S704  # of the wheel


def _read_bundled(name: str) -> str:
    """Read a file of the itables wheel."""
    return (importlib.resources.files("itables") / "html" / name).read_text(encoding="utf-8")


def _read_own(name: str) -> str:
    """Read a file of our templates."""
    return (TEMPLATES / name).read_text(encoding="utf-8")

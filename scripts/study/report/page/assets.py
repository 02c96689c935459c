"""What the page is made with: the templates, and DataTables, which sorts and filters tables, from the itables wheel."""

import base64
import hashlib
import importlib.resources

import jinja2
from markupsafe import Markup

from study.report.page.files import TEMPLATES

ENDS_SCRIPT = ("</script", "<!--")  # in a script's text, these would end it or change how it is read


def environment() -> jinja2.Environment:
    """Jinja, escaping every text that it inserts, and refusing unknown names."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def style() -> Markup:
    """The style sheets: that of DataTables, then our own."""
    return Markup(_bundled("dt_bundle.css") + _own("style.css"))  # noqa: S704  # files of ours and of the wheel


def script() -> Markup:
    """Our script."""
    return Markup(_own("report.js"))  # noqa: S704  # a file of ours


def policy() -> str:
    """The page's content security policy: nothing is fetched, and no script runs but our own and DataTables."""
    found = base64.b64encode(hashlib.sha256(script().encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{found}' blob:; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def library() -> Markup:
    """DataTables, as text that our script loads."""
    text = _bundled("dt_bundle.js")
    for words in ENDS_SCRIPT:  # in strings and regular expressions, a backslash before "/" and "!" changes nothing
        text = text.replace(words, words[0] + "\\" + words[1:])
    return Markup(text)  # noqa: S704  # of the wheel


def _bundled(name: str) -> str:
    return (importlib.resources.files("itables") / "html" / name).read_text(encoding="utf-8")


def _own(name: str) -> str:
    return (TEMPLATES / name).read_text(encoding="utf-8")

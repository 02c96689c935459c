"""HTML pages of the report: one style, readable tables."""

import html
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

_RIGHT = ", ".join(f".r{n} td:nth-child({n})" for n in range(1, 80))
STYLE = f"""
body {{ font: 14px/1.4 sans-serif; margin: 1em; color: #222; }}
table {{ border-collapse: collapse; }}
th, td {{ padding: 2px 8px; border-bottom: 1px solid #ddd; text-align: left; white-space: nowrap; }}
thead th {{ border-bottom: 2px solid #444; }}
tbody tr:nth-child(even) {{ background: #f6f6f6; }}
{_RIGHT} {{ text-align: right; font-variant-numeric: tabular-nums; }}
div {{ overflow-x: auto; }}
summary, li {{ overflow-wrap: anywhere; }}
ol {{ font: 12px/1.4 monospace; }}
"""


def make_page(title: str, *parts: str) -> str:
    """A whole page. title: plain text; parts: HTML, one after the other."""
    return (
        f"<!DOCTYPE html>\n<html lang='en'><head><meta charset='utf-8'><title>{html.escape(title)}</title>"
        f"<style>{STYLE}</style></head>\n<body><h1>{html.escape(title)}</h1>\n"
        + "\n".join(parts)
        + "\n</body></html>\n"
    )


def make_paragraph(text: str) -> str:
    """A paragraph of plain text."""
    return f"<p>{html.escape(text)}</p>"


def make_list(texts: Iterable[str], kind: str = "ul") -> str:
    """A list of plain texts (``ul`` or ``ol``), or an empty text if there are none; line breaks in a text are kept."""
    lines = "".join(f"<li>{'<br>'.join(map(html.escape, text.splitlines()))}</li>" for text in texts)
    return f"<{kind}>{lines}</{kind}>" if lines else ""


def make_image(path: str, words: str) -> str:
    """A figure. path: from the page's folder; words: what it shows, where it cannot be seen."""
    return f"<p><img src='{html.escape(path)}' alt='{html.escape(words)}' style='max-width: 100%'></p>"


def make_details(title: str, part: str) -> str:
    """A part that opens when its title is clicked."""
    return f"<details><summary>{html.escape(title)}</summary>{part}</details>"


def make_table(body: "pd.DataFrame", right: Iterable[int] = ()) -> str:
    """A data frame of texts as a table. right: positions of the columns, from 0, that are aligned to the right."""
    classes = [f"r{position + 1}" for position in right]
    return f"<div>{body.to_html(index=False, border=0, justify='unset', classes=classes)}</div>"

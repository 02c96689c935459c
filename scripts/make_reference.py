"""Write the reference pages of the docs that follow from declarations in the code."""

from study.core.errors import exit_with_message
from study.core.files import write_text
from study.core.paths import ROOT
from study.experiment import reference

PAGES = {"grid-keys.md": reference.grid_keys}


def main() -> None:
    """Write every page."""
    for name, page in PAGES.items():
        write_text(ROOT / "docs" / "reference" / name, page())


if __name__ == "__main__":
    exit_with_message(main)

"""The docs' reference pages are those that the declarations give."""

import make_reference
import pytest

from study.core.paths import ROOT
from study.experiment.parameters import PARAMETERS
from study.training import staging


@pytest.mark.parametrize("name", make_reference.PAGES)
def test_pages_are_current(name):
    written = (ROOT / "docs" / "reference" / name).read_text(encoding="utf-8")
    assert written == make_reference.PAGES[name](), "make reference writes it anew"


def test_every_declared_staging_is_obeyed():
    """Declared where experiments are defined, obeyed where ranks train, which may not import it."""
    source = (ROOT / "scripts" / "study" / "training" / "staging.py").read_text()
    assert staging.tables
    assert all(f'case "{value}":' in source for value in PARAMETERS["staging"].kind.values)

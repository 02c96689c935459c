"""Numbers as people and programs write them: marks between thousands, which are no decimal ones."""

import numpy as np
import pytest

from study.core.quantities import parse_number


@pytest.mark.parametrize(
    ("text", "value"),
    [("1,234", 1234), ("1,234,567.5", 1234567.5), ("0,125", None), ("12,34", None), ("1.09M", 1.09e6), ("x", None)],
)
def test_a_number_has_one_meaning_or_none(text, value):
    found = parse_number(text)
    assert np.isnan(found) if value is None else found == value

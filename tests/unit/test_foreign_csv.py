"""Numbers in files that people bring: marks between thousands, decimal marks, and those that may be either."""

import numpy as np
import pytest

from study.core.foreign_csv import UNCLEAR, marks_at_fault, number


@pytest.mark.parametrize(
    ("text", "decimal", "value"),
    [
        ("1,234", ".", 1234),
        ("1,234,567.5", ".", 1234567.5),
        ("0,125", ".", None),
        ("12,34", ".", None),
        ("4,250", ",", 4.25),
        ("0,125", ",", 0.125),
        ("1.234,5", ",", 1234.5),
        ("1.234", ",", None),
        ("12.5", ",", None),
        ("1,234,567", ",", None),
        ("4,250", UNCLEAR, None),
        ("950", UNCLEAR, 950),
        ("1e3", ",", 1000),
    ],
)
def test_a_number_has_one_meaning_or_none(text, decimal, value):
    found = number(text, decimal)
    assert np.isnan(found) if value is None else found == value


@pytest.mark.parametrize(
    ("text", "decimal", "told"),
    [("4,250", UNCLEAR, "may be a decimal one"), ("12.5", ",", "have decimal commas"), ("x", ",", ""), ("x", ".", "")],
)
def test_marks_that_are_at_fault_are_told(text, decimal, told):
    assert told in marks_at_fault(text, decimal)
    assert bool(told) == bool(marks_at_fault(text, decimal))

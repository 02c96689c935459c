"""Numbers in files that people bring: marks between thousands, decimal marks, and those that may be either."""

import numpy as np
import pytest

from study.core.foreign_csv import explain_unclear_marks, read_foreign_csv
from study.core.quantities import UNCLEAR, parse_number


@pytest.mark.parametrize(
    ("text", "decimal", "value"),
    [("1,234", ".", 1234), ("1,234,567.5", ".", 1234567.5), ("0,125", ".", None), ("12,34", ".", None),
     ("4,250", ",", 4.25), ("0,125", ",", 0.125), ("1.234,5", ",", 1234.5), ("1.234", ",", None), ("12.5", ",", None),
     ("1,234,567", ",", None), ("1e3", ",", 1000), ("4,250", UNCLEAR, None), ("950", UNCLEAR, 950),
     ("1.234", UNCLEAR, None), ("1.2345", UNCLEAR, 1.2345)],
)  # fmt: skip
def test_a_number_has_one_meaning_or_none(text, decimal, value):
    found = parse_number(text, decimal)
    assert np.isnan(found) if value is None else found == value


@pytest.mark.parametrize(
    ("text", "decimal", "told"),
    [
        ("4,250", UNCLEAR, "its comma may be a decimal one"),
        ("4.250", UNCLEAR, "its point may be a decimal one"),
        ("12.5", ",", "have decimal commas"),
        ("x", ",", ""),
        ("x", ".", ""),
    ],
)
def test_marks_that_are_at_fault_are_told(text, decimal, told):
    assert told in explain_unclear_marks(text, decimal)
    assert bool(told) == bool(explain_unclear_marks(text, decimal))


@pytest.mark.parametrize(
    ("cells", "values"),
    [
        (("1.234", "654"), (None, 654)),  # 1234 in languages whose files have semicolons
        (("1.234", "2.345"), (None, None)),
        (("1.234", "0.654"), (1.234, 0.654)),  # no thousands begin with 0
        (("1.234", "6.5"), (1.234, 6.5)),
        (("1.234,5", "654,2"), (1234.5, 654.2)),
    ],
)
def test_points_of_a_file_with_semicolons_may_divide_thousands(tmp_path, cells, values):
    (tmp_path / "a.csv").write_text("".join(f"{line}\n" for line in ("ranks;runtime_s", *(f"1;{x}" for x in cells))))
    found = read_foreign_csv(tmp_path / "a.csv", "").convert_column("runtime_s")
    assert found == pytest.approx([np.nan if value is None else value for value in values], nan_ok=True)

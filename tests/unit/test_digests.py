"""Digests in tables are text to whoever reads them."""

import io

import pandas as pd
import pytest

from study.core import digests


@pytest.mark.parametrize("begin", ["7e6820030182", "123456789012", "000000000000", "1234567890e1", "7e682003018212345"])
def test_a_digest_that_is_a_number_begins_with_a_letter(begin):
    found = digests.shorten_digest(begin + "a" * 52)
    assert len(found) == 12 and not digests.NUMBER_LIKE.fullmatch(found)
    assert found[1:] == begin[1:12] and found[0] == digests.LETTERS[int(begin[0])]
    (read,) = pd.read_csv(io.StringIO(f"code\n{found}\n"))["code"]
    assert read == found


@pytest.mark.parametrize("other", ["a23456789012", "1e2e34567890", "e12345678901", "12345678901e", "12345678901f"])
def test_any_other_is_as_it_is(other):
    assert digests.shorten_digest(other + "0" * 52) == other
    assert pd.read_csv(io.StringIO(f"code\n{other}\n"))["code"].tolist() == [other]

"""Keys by which the rows of one table are joined to those of another: what matches nothing is counted and refused.

A key that differs from a row's only in how it is spelled ("1007.0" and "1007", "A498 " and "a-498") is another fault
than one that has no row: it is refused even if there are few.
"""

import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from study.core.errors import StudyError

SHOWN = 3  # keys in a message
NUMBER = re.compile(r"[+-]?\d+(\.\d*)?(e[+-]?\d+)?")
WITH_PREFIX = re.compile(r"[a-z]{2,}0*(\d+)")  # a single letter begins a name, such as A498


@dataclass(frozen=True)
class Unmatched:
    """Keys of a table that another one lacks.

    keys: the different ones. rows: of the table with such a key. total: rows of the table.
    """

    keys: list[str]
    rows: int
    total: int

    @property
    def share(self) -> float:
        """Share of the rows that match nothing, 0 for a table without rows."""
        return self.rows / self.total if self.total else 0.0


def find_unmatched(keys: Sequence[str], codes: NDArray[np.int64], known: Collection[str]) -> Unmatched:
    """The keys that are not among the ``known`` ones. codes: each row's position in ``keys``."""
    rows = np.bincount(codes, minlength=len(keys))
    lacking = [index for index, key in enumerate(keys) if rows[index] and key not in known]
    return Unmatched([keys[index] for index in lacking], int(rows[lacking].sum()), len(codes))


def find_other_spellings(keys: Iterable[str], known: Iterable[str]) -> dict[str, str]:
    """{key: the known key that differs from it in spelling only}."""
    known_by_form: dict[str, str] = {}
    for name in known:
        for form in _normalize_key(name):
            known_by_form.setdefault(form, name)
    return {
        key: matches[0]
        for key in keys
        if (matches := [known_by_form[form] for form in _normalize_key(key) if form in known_by_form])
    }


def _normalize_key(name: str) -> list[str]:
    """Forms of a key without case, blanks, punctuation and leading zeros; of ``NSC-7`` also the number alone."""
    text = unicodedata.normalize("NFKC", name).replace(":", ".").strip().strip("\"'").casefold()
    if NUMBER.fullmatch(text):
        number = float(text)
        return [str(int(number)) if number == int(number) else repr(number)] if abs(number) < 1e15 else [text]
    plain = "".join(character for character in text if character.isalnum())
    prefixed = WITH_PREFIX.fullmatch(plain)
    return [plain, prefixed[1]] if prefixed else [plain]


def refuse_spellings(where: str, keys: Unmatched, known: Iterable[str], other: str, most: float, limit: str) -> None:
    """Raise `StudyError` if too many keys differ from another table's in spelling only.

    where: file and column of the keys. other: the file that has the ``known`` ones. most: the share that is allowed.
    limit: the key that states it.
    """
    alike = find_other_spellings(keys.keys, known)
    if alike and len(alike) / max(1, len(keys.keys)) * keys.share > most:
        pairs = ", ".join(f"{key!r} for {spelling!r}" for key, spelling in list(alike.items())[:SHOWN])
        raise StudyError(
            f"{where}: {len(alike)} names match no row of {other}, which spells them otherwise ({pairs}); at most "
            f"{most:.1%} of the rows may have such names ({limit}): spell them alike, or raise the limit if they are "
            "different names"
        )


def refuse_unmatched(where: str, keys: Unmatched, other: str, most: float, limit: str) -> None:
    """Raise `StudyError` if more than a share ``most`` of the rows match nothing. limit: the key that sets it."""
    if keys.share > most:
        names = ", ".join(map(repr, keys.keys[:SHOWN]))
        raise StudyError(
            f"{where}: {keys.rows} of {keys.total} rows ({keys.share:.1%}) match no row of {other}, such as {names}; "
            f"at most {most:.1%} may ({limit}): give files that belong together, or raise the limit if it is right"
        )


def check_classes(train: Mapping[str, Sequence[str]], test: Mapping[str, Sequence[str]]) -> None:
    """Raise `StudyError` if test samples have a class that no training sample has.

    train, test: {file: the classes of its samples}; one file each.
    """
    (train_file, train_classes), (test_file, test_classes) = next(iter(train.items())), next(iter(test.items()))
    lacking = sorted(set(test_classes) - set(train_classes))
    if not lacking:
        return
    alike = find_other_spellings(lacking, train_classes)
    pairs = ", ".join(f"{key!r} for {alike[key]!r}" if key in alike else repr(key) for key in lacking[:SHOWN])
    raise StudyError(
        f"{test_file}: {len(lacking)} classes have no sample in {train_file} ({pairs}), so that no model can learn "
        "them; spell them alike, or leave their samples out"
    )

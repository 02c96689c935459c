"""Which runs of a table are of one job: those whose configuration is the same, but for what follows the ranks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd

# Last words of names: of what changes between repeats without changing the work, and of what may only name a run.
OF_REPEATS = ("seed", "repeat", "rep", "replicate", "trial", "attempt", "run", "port", "dir", "folder", "url", "user",
              "host", "hostname", "commit", "date", "time", "timestamp")  # fmt: skip
NAMING = ("name", "id", "path", "file")
NOTHING = "none"
MOST_NAMED = 8  # settings, in a message
MOST_LETTERS = 20  # of a value, in a message


@dataclass(frozen=True)
class Jobs:
    """The jobs of some runs.

    Args:
        names: of each run's job, to be that of its series; None if no two runs must be of different jobs.
        notes: what was found, in sentences.
    """

    names: pd.Series | None
    notes: list[str]


def name_jobs(settings: pd.DataFrame, ranks: pd.Series, name: str) -> Jobs:
    """Tell the jobs of runs apart.

    Args:
        settings: the configuration of the runs: a row per run, a column per setting, texts or numbers.
        ranks: of each run, with the index of ``settings``.
        name: of the table, which begins the names of the jobs.
    """
    if settings.empty:
        return Jobs(None, [])
    texts = settings.map(lambda cell: NOTHING if pd.isna(cell) else str(cell))
    apart = list_differing_settings(texts, [ranks])
    names = pd.Series(name, texts.index)
    for each in apart:
        names = names + f" {each}=" + texts[each]
    notes = []
    if apart:
        whose = "its" if len(apart) == 1 else "their"
        notes.append(
            f"runs on the same ranks differ in {' and '.join(apart)}, so each of {whose} values is a series of its own"
        )
    notes += _describe_changing(texts.drop(columns=apart), names, ranks)
    return Jobs(names if apart else None, notes)


def list_differing_settings(texts: pd.DataFrame, keys: list[pd.Series]) -> list[str]:
    """The settings without which some runs that are alike in ``keys`` would have different ones.

    A setting that follows the keys, as a global batch follows the ranks, is none of them. Nor is one in which all runs
    differ, such as the name of a folder. Of settings that change together, the one with the fewest values is taken, and
    words before numbers.
    """
    candidates = [name for name in texts if 1 < texts[name].nunique() < len(texts) and not is_of_repeats(name)]
    differing: list[str] = []
    for name in sorted(candidates, key=lambda name: (texts[name].nunique(), not _is_of_words(texts[name]))):
        if _differs_within(texts[name], [*keys, *(texts[each] for each in differing)]):
            differing.append(name)
    return differing


def is_setting(cells: pd.Series) -> bool:
    """Whether a column that does not say so may be a setting: few words, or few numbers. A metric has many numbers."""
    number = cells.nunique()
    return 1 < number < len(cells) if _is_of_words(cells) else 1 < number <= len(cells) / 2


def is_of_repeats(name: str) -> bool:
    """Whether a column tells repeats apart by its name, such as ``config.seed``, or says where and when a run was."""
    return _get_last_word(name) in OF_REPEATS


def _describe_changing(texts: pd.DataFrame, names: pd.Series, ranks: pd.Series) -> Iterator[str]:
    """Sentences on the settings that change within a job: those of words are asked about."""
    words, numbers = [], []
    for name in texts:
        cells = texts[name]
        if is_of_repeats(name) or not _differs_within(cells, [names]):
            continue
        has_words = _is_of_words(cells)
        follows = has_words and not _differs_within(cells, [names, ranks])  # as names of runs do, such as run-8
        if cells.nunique() == len(cells) and (follows or _get_last_word(name) in NAMING):
            continue
        if has_words:
            first, second = (value[:MOST_LETTERS] for value in sorted(cells.unique())[:2])
            words.append(f"{name} ({first}, {second})")
        else:
            numbers.append(name)
    if words:
        examples = "; ".join(words[:MOST_NAMED])
        yield (
            f"runs differ in {examples}: if they are of several jobs, give these apart or name them in a column series"
        )
    if numbers:
        yield f"runs also differ in {', '.join(numbers[:MOST_NAMED])}, which is taken for a part of scaling"


def _differs_within(cells: pd.Series, keys: list[pd.Series]) -> bool:
    return bool((cells.groupby([each.to_numpy() for each in keys]).nunique() > 1).any())


def _is_of_words(cells: pd.Series) -> bool:
    return bool(pd.to_numeric(cells, errors="coerce").isna().all())


def _get_last_word(name: str) -> str:
    return re.split(r"[\W_]+", name.lower().strip())[-1]

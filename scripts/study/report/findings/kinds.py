"""The kinds of findings: how the arms of a comparison become an estimate with an interval; docs/comparing-runs.md."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from study.compare import estimates
from study.compare.estimates import Estimate
from study.core.registry import Registry

Arms = Mapping[Any, pd.DataFrame]  # value of the compared key -> rows with the columns `VALUE` and `ALONG`
VALUE, ALONG = "finding_value", "finding_along"


@dataclass(frozen=True)
class Kind:
    """A kind of finding.

    Args:
        compare: from the arms to the estimate.
        formula: what the estimate is; ``{value}``, ``{along}``, ``{key}`` and ``{arms}`` stand for what is compared.
        unit: of the estimate; ``{value}`` and ``{along}`` stand for the units of the quantities, ``{key}`` for the key.
        no_effect: the estimate if the arms do not differ.
        divides: whether it divides one arm by the other: two arms, and positive values only. Else two arms or more.
        numeric: whether the compared key must be a number.
        along: whether it needs a second quantity, `along`.
        is_reduction: whether a positive estimate means a smaller value.
    """

    compare: Callable[[Arms], Estimate]
    formula: str
    unit: str
    no_effect: float = 0.0
    divides: bool = False
    numeric: bool = False
    along: bool = False
    is_reduction: bool = False


KINDS: Registry[Kind] = Registry("kind of finding")


def register_kind(name: str, **settings: Any) -> Callable[[Callable[[Arms], Estimate]], Callable[[Arms], Estimate]]:
    """Register the decorated function as the comparison of kind ``name``. settings: of `Kind`."""

    def register(compare: Callable[[Arms], Estimate]) -> Callable[[Arms], Estimate]:
        KINDS.add(name, Kind(compare, **settings))
        return compare

    return register


@register_kind("ratio", formula="{value}: {key} {arms}", unit="1", no_effect=1.0, divides=True)
def estimate_ratio_of_arms(arms: Arms) -> Estimate:
    """The first arm's value / the second's: geometric mean of the blocks' ratios."""
    one, other = arms.values()
    return estimates.estimate_ratio(one, other, VALUE)


@register_kind("reduction", formula="1 - {value}: {key} {arms}", unit="%", divides=True, is_reduction=True)
def estimate_reduction(arms: Arms) -> Estimate:
    """By how many percent the first arm's value is smaller than the second's: 1 less their `estimate_ratio_of_arms`."""
    return estimate_ratio_of_arms(arms).convert(lambda each: 100 * (1 - each))


@register_kind("trend", formula="change of {value} per doubling of {key}", unit="{value} per doubling", numeric=True)
def estimate_trend(arms: Arms) -> Estimate:
    """By how much the value changes with each doubling of the key: the mean of the blocks' slopes."""
    doublings = {value: float(np.log2(value)) for value in arms}
    return estimates.estimate_slope(
        [rows.assign(**{ALONG: doublings[value]}) for value, rows in arms.items()],
        ALONG,
        VALUE,
        list(doublings.values()),
    )


@register_kind("follows", formula="change of {value} per unit of {along}", unit="{value} per {along}", along=True)
def estimate_following(arms: Arms) -> Estimate:
    """By how much the value changes with each unit of the quantity `along`, from arm to arm."""
    return estimates.estimate_slope(list(arms.values()), ALONG, VALUE, _rank_arms(list(arms)))


def _rank_arms(values: list[Any]) -> list[float]:
    """The order of the arms: of numbers, the rising one, else that of the declaration."""
    are_numbers = all(isinstance(value, int | float) for value in values)
    order = sorted(values) if are_numbers else values
    return [float(order.index(value)) for value in values]

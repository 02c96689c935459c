"""The formulas of claims: of runs, from two sets of them to a number; of a paper, over its printed values.

A formula of a paper is text in its ``claims.yaml``, such as ``100 * text('a_gb_per_s') / text('b_gb_per_s')``:
arithmetic over numbers, calls of the functions that are handed in, and names.
"""

import ast
import functools
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import pandas as pd

from study.core.statistics import subtract
from study.report.tables.point_comparisons import OF_RATIO

Numbers = TypeVar("Numbers", float, pd.Series)
Function = Callable[..., Any]
OPERATORS: dict[type, Function] = {
    ast.Add: operator.add, ast.Sub: subtract, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.Pow: operator.pow, ast.USub: operator.neg,
}  # fmt: skip
SYNTAX = "numbers, texts, names, calls such as text('measure'), and + - * / ** with brackets"


class Cell(float):
    """A printed value with its lowest and highest one; NaN for what is not printed."""

    low: float
    high: float

    def __new__(cls, value: float, low: float = math.nan, high: float = math.nan) -> "Cell":
        """A value, or a range without one (NaN)."""
        cell = super().__new__(cls, value)
        cell.low, cell.high = float(low), float(high)
        return cell


def low(cell: Cell) -> float:
    """The lowest value that is printed."""
    return cell.low


def high(cell: Cell) -> float:
    """The highest value that is printed."""
    return cell.high


def around(value: float, half: float) -> Cell:
    """A value with the interval of this half-width."""
    return Cell(value, value - half, value + half)


def make_lower_bound(value: float) -> Cell:
    """A cell with a lowest value only."""
    return Cell(math.nan, low=value)


def make_upper_bound(value: float) -> Cell:
    """A cell with a highest value only."""
    return Cell(math.nan, high=value)


def make_range(lowest: float, highest: float) -> Cell:
    """A cell with a lowest and a highest value."""
    return Cell(math.nan, lowest, highest)


def find_first_lasting(excess: pd.Series) -> float:
    """The smallest index from which on a series is positive, at it and all larger ones; NaN if none."""
    excess = excess.sort_index()
    below = excess.index[~(excess > 0)]
    above = excess.index[excess.index > below.max()] if len(below) else excess.index
    return float(above.min()) if len(above) else math.nan


ARITHMETIC: dict[str, Function] = {
    "low": low, "high": high, "around": around, "at_least": make_lower_bound,
    "at_most": make_upper_bound, "between": make_range,
    "abs": abs, "sqrt": math.sqrt, "ceil": math.ceil, "floor": math.floor, "min": min, "max": max, "sum": sum,
    "first_lasting": find_first_lasting, "count_lower": lambda one, other: int((one < other).sum()),
}  # fmt: skip


def convert_ratio(form: str, ratio: Numbers, ranks: float = 1) -> Numbers:
    """The claim's number from one / other. ranks: ranks of one / ranks of other, for ``efficiency``."""
    number: Numbers = ratio / ranks if form == "efficiency" else OF_RATIO[form](ratio)
    return number


def compute_form(form: str, one: Numbers, other: Numbers) -> Numbers:
    """The claim's number of two values, or of each pair in two columns; ``value`` is the first one."""
    if form == "value":
        return one
    number: Numbers = subtract(one, other) if form == "difference" else convert_ratio(form, one / other)
    return number


@functools.cache
def parse_formula(formula: str) -> ast.expr:
    """The syntax tree of a formula; raises `ValueError` if it is not one."""
    try:
        tree = ast.parse(formula, mode="eval").body
    except (SyntaxError, RecursionError, MemoryError):
        raise ValueError(f"expected a formula of {SYNTAX}") from None
    for node in ast.walk(tree):
        if not isinstance(node, ast.expr | ast.operator | ast.unaryop | ast.keyword | ast.expr_context) or (
            isinstance(node, ast.expr)
            and not isinstance(node, ast.BinOp | ast.UnaryOp | ast.Constant | ast.Name | ast.Call)
        ):
            raise ValueError(f"expected a formula of {SYNTAX}")
        if isinstance(node, ast.operator | ast.unaryop) and type(node) not in OPERATORS:
            raise ValueError(f"expected a formula of {SYNTAX}")
        if isinstance(node, ast.Call) and not isinstance(node.func, ast.Name):
            raise ValueError(f"expected a formula of {SYNTAX}")
    return tree


def list_used_names(formula: str) -> tuple[set[str], set[str]]:
    """(names, functions) that a formula uses; raises `ValueError` as `parse_formula`."""
    nodes = list(ast.walk(parse_formula(formula)))
    functions = [node.func for node in nodes if isinstance(node, ast.Call)]
    names = {node.id for node in nodes if isinstance(node, ast.Name) and node not in functions}
    return names, {each.id for each in functions if isinstance(each, ast.Name)}


def evaluate_formula(formula: str, name: Callable[[str], Any], functions: Mapping[str, Function]) -> Any:
    """The value of a formula. name: from a name in it to its value."""

    def value(node: ast.expr) -> Any:
        match node:
            case ast.Constant():
                return node.value
            case ast.Name():
                return name(node.id)
            case ast.UnaryOp():
                return OPERATORS[type(node.op)](value(node.operand))
            case ast.BinOp():
                return OPERATORS[type(node.op)](value(node.left), value(node.right))
            case ast.Call(func=ast.Name(id=function)):
                named = {each.arg: value(each.value) for each in node.keywords if each.arg}
                return functions[function](*map(value, node.args), **named)
        raise ValueError(f"expected a formula of {SYNTAX}")

    return value(parse_formula(formula))

"""The formulas of tables and claims: over columns of runs and points, and over a paper's printed values.

A formula is text in YAML, such as ``100 * text('a_gb_per_s') / text('b_gb_per_s')``: arithmetic over numbers, ``==``,
calls of the functions that are handed in, and names.
"""

import ast
import functools
import math
import operator
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np
import pandas as pd

from study.core.errors import StudyError
from study.core.statistics import subtract

Function = Callable[..., Any]
OPERATORS: dict[type, Function] = {
    ast.Add: operator.add, ast.Sub: subtract, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.Pow: operator.pow, ast.USub: operator.neg, ast.Eq: operator.eq,
}  # fmt: skip
SYNTAX = "numbers, texts, names, calls such as text('measure'), and + - * / ** == with brackets"


class Cell(float):
    """A printed value with its lowest and highest one; NaN for what is not printed."""

    low: float
    high: float

    def __new__(cls, value: float, low: float = math.nan, high: float = math.nan) -> "Cell":
        """A value, or a range without one (NaN)."""
        cell = super().__new__(cls, value)
        cell.low, cell.high = float(low), float(high)
        return cell


def find_first_lasting(excess: pd.Series) -> float:
    """The smallest index from which on a series is positive, at it and all larger ones; NaN if none."""
    excess = excess.sort_index()
    below = excess.index[~(excess > 0)]
    above = excess.index[excess.index > below.max()] if len(below) else excess.index
    return float(above.min()) if len(above) else math.nan


def average_values(values: pd.Series, weights: pd.Series | None = None) -> Cell:
    """The mean of several printed numbers, with the lowest and the highest one."""
    return Cell(float(np.average(values, weights=weights)), values.min(), values.max())


# Functions of all formulas. Of a paper's numbers: around, at_least, at_most and between make a `Cell`, and low and high
# are its ends.
ARITHMETIC: dict[str, Function] = {
    "low": operator.attrgetter("low"),
    "high": operator.attrgetter("high"),
    "around": lambda value, half: Cell(value, value - half, value + half),
    "at_least": lambda lowest: Cell(math.nan, low=lowest),
    "at_most": lambda highest: Cell(math.nan, high=highest),
    "between": lambda lowest, highest: Cell(math.nan, lowest, highest),
    "abs": abs, "sqrt": np.sqrt, "ceil": math.ceil, "floor": math.floor, "min": min, "max": max, "sum": sum,
    "mean_of": average_values,
    "first_known": lambda one, other: one.fillna(other),  # of each row
    "first_lasting": find_first_lasting, "count_lower": lambda one, other: int((one < other).sum()),
}  # fmt: skip
SYNTAX_NODES = (
    ast.BinOp, ast.UnaryOp, ast.Compare, ast.Constant, ast.Name, ast.Call, ast.keyword, ast.expr_context, *OPERATORS,
)  # fmt: skip


@functools.cache
def parse_formula(formula: str) -> ast.expr:
    """The syntax tree of a formula; raises `ValueError` if it is not one."""
    try:
        tree = ast.parse(formula, mode="eval").body
    except (SyntaxError, RecursionError, MemoryError):
        raise ValueError(f"expected a formula of {SYNTAX}") from None
    for node in ast.walk(tree):
        is_method = isinstance(node, ast.Call) and not isinstance(node.func, ast.Name)
        is_chain = isinstance(node, ast.Compare) and len(node.ops) > 1
        if is_method or is_chain or not isinstance(node, SYNTAX_NODES):
            raise ValueError(f"expected a formula of {SYNTAX}")
    return tree


def list_used_names(formula: str) -> tuple[set[str], set[str]]:
    """(names, functions) that a formula uses; raises `ValueError` as `parse_formula`."""
    nodes = list(ast.walk(parse_formula(formula)))
    functions = [node.func for node in nodes if isinstance(node, ast.Call)]
    names = {node.id for node in nodes if isinstance(node, ast.Name) and node not in functions}
    return names, {each.id for each in functions if isinstance(each, ast.Name)}


def check_formula(where: str, formula: str, functions: Collection[str], names: Collection[str] | None = None) -> None:
    """Raise `StudyError` for a formula that is none, or that uses a name or a function that there is not.

    where: file and key. names: those that it may use; None for any.
    """
    try:
        used_names, used_functions = list_used_names(formula)
    except ValueError as error:
        raise StudyError(f"{where}: {error}, found {formula!r}") from None
    for kind, used, known in (("name", used_names, names), ("function", used_functions, functions)):
        if known is not None and (unknown := sorted(used.difference(known))):
            expected = f"expected a {kind}: {', '.join(sorted(known))}"
            raise StudyError(f"{where}: {formula!r} uses {unknown[0]!r}; {expected}")


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
            case ast.Compare(ops=[operation], comparators=[right]):
                return OPERATORS[type(operation)](value(node.left), value(right))
            case ast.Call(func=ast.Name(id=function)):
                named = {each.arg: value(each.value) for each in node.keywords if each.arg}
                return functions[function](*map(value, node.args), **named)
        raise ValueError(f"expected a formula of {SYNTAX}")

    return value(parse_formula(formula))


def compute_column(table: pd.DataFrame, formula: str) -> pd.Series:
    """The values of a formula over the columns of a table; a division by 0 has none."""

    def column(name: str) -> pd.Series:
        values = table[name]
        return values.astype(float) if values.isna().all() else values  # None cannot be calculated with

    values: pd.Series = evaluate_formula(formula, column, ARITHMETIC)
    return values.replace([np.inf, -np.inf], np.nan)


def add_columns(table: pd.DataFrame, formulas: Mapping[str, str]) -> pd.DataFrame:
    """The table with a column of each formula, {column: formula}, which may use the columns before it."""
    for name, formula in formulas.items():
        table = table.assign(**{name: compute_column(table, formula)})
    return table

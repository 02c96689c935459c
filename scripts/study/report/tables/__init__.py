"""The tables: declared in YAML; code that makes their rows is here or in the papers' modules."""

from study.core.registry import import_submodules
from study.report.tables.kinds import TABLES

__all__ = ["TABLES"]

import_submodules(__name__)

import study.report.papers  # noqa: E402, F401  whose tables register themselves
from study.report.tables.declared import register_tables_of_points  # noqa: E402

register_tables_of_points()

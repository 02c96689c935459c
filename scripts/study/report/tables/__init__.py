"""The tables: each registered where it is defined, here or in its paper's folder."""

from study.core.registry import import_submodules
from study.report.tables.kinds import TABLES

__all__ = ["TABLES"]

import_submodules(__name__)

import study.report.papers  # noqa: E402, F401  whose tables register themselves

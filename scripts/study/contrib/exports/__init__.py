"""A run or a study in the formats of other tools, Perfetto and MLflow, or as one file.

Each is registered where it is defined. None needs a package of the tool. What was not measured is absent.
"""

from study.contrib.exports.declared import check, is_of_runs
from study.contrib.exports.kinds import EXPORTS
from study.core.registry import import_submodules

__all__ = ["EXPORTS", "check", "is_of_runs"]

import_submodules(__name__)

"""A run or a study in the formats of other tools, Perfetto and MLflow, or as one file.

Each is registered where it is defined. None needs a package of the tool. What was not measured is absent.
"""

from study.contrib.exports.kinds import EXPORTS
from study.contrib.exports.study_exports import check_exports, is_run_export
from study.core.registry import import_submodules

__all__ = ["EXPORTS", "check_exports", "is_run_export"]

import_submodules(__name__)

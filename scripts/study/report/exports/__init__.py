"""A run or a study in the formats of other tools: Perfetto, MLPerf's log, MLflow, RO-Crate, OpenMetrics.

Each is registered where it is defined. None needs a package of the tool. What was not measured is absent.
"""

from study.core.registry import import_submodules
from study.report.exports.kinds import EXPORTS

__all__ = ["EXPORTS"]

import_submodules(__name__)

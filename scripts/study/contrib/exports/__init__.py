"""A study's results as one file, and its runs as traces for Perfetto. What was not measured is absent."""

from study.contrib.exports.study_exports import EXPORTS, check_exports, is_run_export

__all__ = ["EXPORTS", "check_exports", "is_run_export"]

"""A run or a study in the formats of other tools: MLPerf's log, MLflow, RO-Crate, OpenMetrics.

What was not measured is absent.
"""

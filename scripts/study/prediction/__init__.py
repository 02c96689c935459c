"""Predict times, power and energy at rank counts that were not measured, and recommend a count; reads records only."""

"""The run record, and the tidy tables of runs and loads."""

"""A framework for tests: a linear model in NumPy, which trains in milliseconds."""

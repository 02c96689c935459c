"""One rank of a run, from start-up to evaluation."""

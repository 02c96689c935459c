"""Datasets: where they come from, how they are checked and converted."""

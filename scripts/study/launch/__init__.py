"""Around the ranks: start, supervise, and record how a run ended."""

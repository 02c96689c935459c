"""What to run: parameters, studies, their expansion into runs, feasibility, a run's definition."""

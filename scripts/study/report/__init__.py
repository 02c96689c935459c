"""Output for people: tables, figures, the report's pages; one folder per paper in papers/."""

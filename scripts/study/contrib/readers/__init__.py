"""Points for `study predict` in CSV files that people bring."""

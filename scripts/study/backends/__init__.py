"""The frameworks that train: one package each, and the only importers of their frameworks."""

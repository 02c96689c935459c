"""The figures: described in YAML, made from the tidy tables and the published values.

`description` reads what is to be drawn. `kinds` has the kinds of figures: points against the number of GPUs, traced
runs over time, loading measurements of formats. The other modules select their data and draw.
"""

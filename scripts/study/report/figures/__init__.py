"""The figures: described in config/figures/icpp2019.yaml, made from the tidy table of runs and the published values.

`description` reads what is to be drawn, `selection` picks and summarises the data, `drawing` draws them and writes.
"""

"""Starts `study.commands.datasets.fit_scalers`."""

from study.commands.datasets import fit_scalers

if __name__ == "__main__":
    fit_scalers.start()

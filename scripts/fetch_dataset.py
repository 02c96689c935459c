"""Starts `study.commands.datasets.fetch_dataset`."""

from study.commands.datasets import fetch_dataset

if __name__ == "__main__":
    fetch_dataset.start()

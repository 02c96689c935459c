"""Starts `study.commands.datasets.scale_file`."""

from study.commands.datasets import scale_file

if __name__ == "__main__":
    scale_file.start()

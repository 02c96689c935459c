"""Starts `study.commands.measurements.read_storage`."""

from study.commands.measurements import read_storage

if __name__ == "__main__":
    read_storage.start()

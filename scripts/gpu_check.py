"""Starts `study.commands.measurements.gpu`."""

from study.commands.measurements import gpu

if __name__ == "__main__":
    gpu.start()

"""Starts `study.commands.measurements.measure_loading`."""

from study.commands.measurements import measure_loading

if __name__ == "__main__":
    measure_loading.start()

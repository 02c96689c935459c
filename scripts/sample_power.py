"""Sample this host's power sensors, and what else uses it, until standard input is closed.

It is started by the launch or by each host's first rank.
"""

import argparse
import json
import os
import signal
import sys

from study.core import cores, number_types
from study.core.errors import exit_with_message
from study.instruments import background, gpus
from study.instruments.power import sampler, sensors
from study.instruments.power.readings import SENSORS


def main() -> None:
    """Sample the sensors on the command line until standard input is closed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sensor", nargs="*", default=[], choices=list(SENSORS))
    parser.add_argument("--model", type=json.loads, help="idle_w and peak_w, as JSON, for a modelled power")
    parser.add_argument("--rate-hz", type=number_types.parse_rate, default=10)
    parser.add_argument("--output", required=True, help="the CSV file of readings")
    parser.add_argument("--background", help="the CSV file of what else uses the host")
    parser.add_argument("--all-cores", action="store_true", help="not only those of the process that starts it")
    arguments = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # meant for the ranks; the sampler ends after them
        signal.signal(number, signal.SIG_IGN)
    if arguments.all_cores:
        cores.use_all_cores()
    devices, reasons = sensors.find_devices(arguments.sensor, arguments.model)
    described_devices = [{"sensor": device.sensor, "kind": device.kind, "device": device.name} for device in devices]

    def announce():
        print(json.dumps({"devices": described_devices, "reasons": reasons}), flush=True)
        sys.stdout.close()

    run = os.environ.get(background.VARIABLE)
    others = None
    if arguments.background and run:
        of_host = background.Background(run, os.getppid())
        others = sampler.BackgroundFile(arguments.background, of_host, gpus.find_gpus("nvml" in arguments.sensor))
    if devices or others:
        sampler.sample(devices, arguments.output, arguments.rate_hz, ready=announce, background=others)
    else:
        announce()


if __name__ == "__main__":
    exit_with_message(main)

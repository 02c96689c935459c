"""The sampler against a real NVIDIA GPU, its own energy counter and nvidia-smi. PyTorch makes the load.

python -m pytest tests/gpu -s      prints the figures for docs/telemetry.md
"""

import json
import os
import statistics
import subprocess
import sys
import threading
import time

import pynvml
import pytest

from study.core.paths import ROOT
from study.instruments.gpus import list_visible_gpus
from study.instruments.power import energy
from study.instruments.power.telemetry import read_series

SECONDS = 15
RATE = 10


@pytest.fixture(scope="module")
def gpu():
    """The NVML handle of the first GPU."""
    try:
        pynvml.nvmlInit()
        return pynvml.nvmlDeviceGetHandleByIndex(0)
    except pynvml.NVMLError as error:
        pytest.skip(f"no NVIDIA GPU here: {error}")


@pytest.fixture(scope="module")
def measured(gpu, tmp_path_factory):
    """One load, watched by the sampler, by NVML's own counter and by nvidia-smi at once."""
    torch = pytest.importorskip("torch", reason="PyTorch, which makes the load, is not installed")
    if not torch.cuda.is_available():
        pytest.skip("PyTorch sees no GPU")
    path = tmp_path_factory.mktemp("gpu") / "telemetry.csv"
    line = [sys.executable, str(ROOT / "scripts" / "sample_power.py"), "--sensor", "nvml", "--rate-hz", str(RATE)]
    sampler = subprocess.Popen([*line, "--output", str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    told = json.loads(sampler.stdout.readline())
    shown, stop = [], threading.Event()
    asker = threading.Thread(target=_ask_nvidia_smi, args=(shown, stop))
    matrix = torch.rand((8192, 8192), device="cuda")
    asker.start()
    begun, counter = time.monotonic(), pynvml.nvmlDeviceGetTotalEnergyConsumption(gpu)
    while time.monotonic() - begun < SECONDS:
        matrix = torch.nn.functional.normalize(matrix @ matrix)
        torch.cuda.synchronize()
    joules = (pynvml.nvmlDeviceGetTotalEnergyConsumption(gpu) - counter) / 1000
    ended = time.monotonic()
    stop.set()
    asker.join()
    time.sleep(2 / RATE)
    sampler.stdin.close()
    assert sampler.wait(10) == 0
    (series,) = [each for each in read_series(path) if each.name == _uuid(gpu)]
    found = energy.compute_energy(series, begun, ended, RATE)
    print(f"\n{pynvml.nvmlDeviceGetName(gpu)}, driver {pynvml.nvmlSystemGetDriverVersion()}: {ended - begun:.1f} s of "
          f"load; NVML's counter {joules:.1f} J; ours {found.counter_j:.1f} J, trapezoid {found.trapezoid_j:.1f} J, "
          f"1 Hz {found.one_hz_j:.1f} J; nvidia-smi {statistics.mean(shown):.1f} W, ours "
          f"{found.counter_j / (ended - begun):.1f} W; {found.updates} updates")  # fmt: skip
    return {"told": told, "found": found, "joules": joules, "seconds": ended - begun, "shown": shown}


def _ask_nvidia_smi(shown, stop):
    """The power that nvidia-smi shows, as often as it answers, without the first second."""
    line = ["nvidia-smi", "--query-gpu=power.draw", "--format=csv,noheader,nounits", "--id=0"]
    begun = time.monotonic()
    while not stop.is_set():
        text = subprocess.run(line, capture_output=True, text=True, check=True).stdout
        if time.monotonic() - begun > 2:
            shown.append(float(text.split()[0]))


def _uuid(gpu):
    uuid = pynvml.nvmlDeviceGetUUID(gpu)
    return uuid.decode() if isinstance(uuid, bytes) else uuid


def test_gpus_are_named_as_nvidia_smi_names_them(gpu, measured):
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True).stdout
    names = [device["device"] for device in measured["told"]["devices"]]
    assert names
    assert all(name in listed for name in names)
    assert set(list_visible_gpus()) <= set(names)


def test_energy_is_the_driver_s_counter(measured):
    assert measured["found"].counter_j == pytest.approx(measured["joules"], rel=0.03)
    assert measured["found"].gap_s == 0


def test_power_s_integral_agrees_with_the_counter(measured):
    assert measured["found"].trapezoid_j == pytest.approx(measured["joules"], rel=0.1)


def test_power_is_what_nvidia_smi_shows(measured):
    assert measured["found"].counter_j / measured["seconds"] == pytest.approx(
        statistics.mean(measured["shown"]), rel=0.1
    )


SHOWS = """
import json, torch
print(json.dumps([str(torch.cuda.get_device_properties(number).uuid) for number in range(torch.cuda.device_count())]))
"""


@pytest.mark.parametrize(
    "setting", [None, "numbers", "reversed numbers", "UUIDs", "reversed UUIDs", "short UUID", "-1"]
)
def test_gpus_that_are_visible_are_those_that_pytorch_shows(gpu, setting):
    pytest.importorskip("torch", reason="PyTorch is not installed")
    variables = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    variables["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"  # as the launch sets it
    uuids = list_visible_gpus(variables)
    if None in uuids:
        pytest.skip("a GPU is in MIG mode, is lost, or cannot be identified")
    numbers = [str(number) for number in range(len(uuids))]
    values = {"numbers": numbers, "reversed numbers": numbers[::-1], "UUIDs": uuids, "reversed UUIDs": uuids[::-1],
              "short UUID": [uuids[0][:12]], "-1": ["-1"]}  # fmt: skip
    if setting:
        variables["CUDA_VISIBLE_DEVICES"] = ",".join(values[setting])
    done = subprocess.run([sys.executable, "-c", SHOWS], env=variables, capture_output=True, text=True, check=True)
    assert [f"GPU-{uuid.removeprefix('GPU-')}" for uuid in json.loads(done.stdout)] == list_visible_gpus(variables)

"""Operations of training steps by PyTorch's profiler (Kineto)."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from study.backends.pytorch import devices
from study.instruments import kineto
from study.instruments.operations import MARK, Recording

HOROVOD_UNSEEN = "Horovod sends from a thread of its own, which PyTorch's profiler does not see; trace: true shows it"


class TorchProfiler:
    """A `study.instruments.operations.Profiler`.

    Args:
        device: of the rank.
        unseen: why its communication is not seen, if so.
    """

    def __init__(self, device: torch.device, unseen: str = "") -> None:
        self._device, self._unseen = device, unseen
        every = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device.type == "cuda" else [])]
        self._profile = profile(activities=every)

    def start(self) -> None:
        """Start profiling, after the queued kernels; a first mark, which takes a millisecond more, is made here."""
        self.synchronize()
        self._profile.start()
        with record_function("study.first"):
            pass

    def mark(self) -> None:
        """Mark the begin of a step by an annotation."""
        with record_function(MARK):
            pass

    def synchronize(self) -> None:
        """Wait for the GPU."""
        devices.synchronize(self._device)

    def stop(self) -> None:
        """Stop profiling; reading the profile takes longer, and is left for the end of training."""
        self._profile.stop()

    def collect(self) -> Recording:
        """Read the operations and marks of the profile, through Kineto's public format, the Chrome trace."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "trace.json"
            self._profile.export_chrome_trace(str(path))
            trace = kineto.parse_trace(json.loads(path.read_text(encoding="utf-8", errors="replace")))
        return Recording(
            f"Kineto of torch {torch.__version__}", trace.device, trace.operations, trace.marks, self._unseen
        )

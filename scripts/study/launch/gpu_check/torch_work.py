"""Matrix multiplication that uses a GPU fully, and what PyTorch tells of its GPUs."""

import importlib
import threading
from typing import Any

from study.launch.gpu_check.context import ShownDevice
from study.launch.gpu_check.results import NotPossible

SIZE = 8192  # of the matrices: 1.1 TFLOP each time, in bfloat16 or float16
AT_ONCE = 4  # multiplications between two looks at whether to end


def torch() -> Any:
    """The module; raises `NotPossible` without it. By name, since `study.backends` is not importable everywhere."""
    try:
        return importlib.import_module("torch")
    except (ImportError, OSError) as error:
        raise NotPossible(f"PyTorch cannot be imported: {error}") from None


def need(kind: str) -> Any:
    """The module; raises `NotPossible` where it cannot use a GPU and ``kind`` is ``cuda``."""
    module = torch()
    if kind == "cuda" and not module.cuda.is_available():
        raise NotPossible(f"PyTorch {module.__version__} sees no GPU")
    return module


def shown_devices() -> list[ShownDevice]:
    """The GPUs that PyTorch shows in this process."""
    module = torch()
    if module.version.cuda is None and module.version.hip is None:
        raise NotPossible(f"PyTorch {module.__version__} was built without CUDA")
    cuda = module.cuda
    return [_device(cuda.get_device_properties(number)) for number in range(cuda.device_count())]


def _device(properties: Any) -> ShownDevice:
    address = [getattr(properties, f"pci_{part}_id", None) for part in ("domain", "bus", "device")]
    uuid = getattr(properties, "uuid", None)
    pci = None if None in address else tuple(address)
    return ShownDevice(properties.name, None if uuid is None else str(uuid), pci)  # type: ignore[arg-type]


class Matmul:
    """Work on one GPU, by a thread. kind: ``cuda``; a test has ``cpu``. size: of the matrices."""

    def __init__(self, kind: str = "cuda", size: int = SIZE) -> None:
        self._kind, self._size = kind, size
        self._operands: dict[int, tuple[Any, Any]] = {}
        self._ended, self._thread = threading.Event(), None
        self._error: Exception | None = None

    _thread: threading.Thread | None

    def prepare(self, index: int) -> None:
        """Allocate, and multiply once: the first time takes seconds."""
        if index in self._operands:
            return
        module = torch()
        if self._kind == "cuda" and index >= module.cuda.device_count():
            raise NotPossible(f"PyTorch {module.__version__} sees {module.cuda.device_count()} GPUs")
        device = module.device(self._kind, index)
        kind = module.float16 if self._kind == "cuda" else module.float32
        operand = module.randn(self._size, self._size, device=device).to(kind)
        self._operands[index] = operand, module.empty_like(operand)
        self._multiply(index)

    def _multiply(self, index: int) -> None:
        module, (operand, result) = torch(), self._operands[index]
        for _ in range(AT_ONCE):
            module.mm(operand, operand, out=result)
        if self._kind == "cuda":
            module.cuda.synchronize(index)

    def start(self, index: int) -> None:
        """Begin; ends what ran before."""
        self.stop()
        self.prepare(index)
        self._ended.clear()
        self._thread = threading.Thread(target=self._run, args=(index,), daemon=True)
        self._thread.start()

    def _run(self, index: int) -> None:
        try:
            while not self._ended.is_set():
                self._multiply(index)
        except Exception as error:  # told by `stop`: in this thread nobody would hear of it
            self._error = error

    def stop(self) -> None:
        """Wait for the end of the last multiplications; raises what ended them before."""
        self._ended.set()
        if self._thread:
            self._thread.join()
        self._thread, error, self._error = None, self._error, None
        if error:
            raise error

"""A Chrome trace as PyTorch's profiler writes it with a GPU. It is synthetic: written by hand, recorded nowhere.

Names, categories and units are those of torch 2.13's exports. A step lasts 100 us: its batch is copied to the GPU
(10 us), kernels compute (50 us in two parts, with a gap of 10 us), an allreduce runs (30 us, of which a kernel hides
10 us).
"""

ZERO_US = 1_000_000.5  # of Kineto's clock
STEP_US = 100
QUEUE = "cudaLaunchKernel"


def trace(steps=2, mark="study.mark"):
    """The trace; the host marks the begin of each step, and queues all kernels at once."""
    events = [{"ph": "M", "name": "process_name", "pid": 1, "tid": 0, "ts": ZERO_US, "args": {"name": "python"}}]
    for step in range(steps):
        begin = ZERO_US + step * STEP_US
        events += [
            _event("user_annotation", mark, begin, 1),
            _event("cpu_op", "aten::mm", begin + 2, 3),
            _event("cuda_runtime", QUEUE, begin + 3, 1),
            _event("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", begin + 5, 10, 7),
            _event("kernel", "ampere_sgemm_128x64_nn", begin + 15, 30, 7),
            _event("kernel", "void at::native::elementwise_kernel<4>(int)", begin + 55, 20, 7),
            _event("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(...)", begin + 65, 30, 20),
        ]
    return {"schemaVersion": 1, "baseTimeNanoseconds": 1_790_000_000_000_000_000, "traceEvents": events}


def _event(category, name, begin, length, stream=100):
    return {"ph": "X", "cat": category, "name": name, "pid": 0, "tid": stream, "ts": begin, "dur": length}

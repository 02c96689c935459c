"""The benchmarks: one module here and one YAML in ``config/benchmarks`` each."""

import importlib


def get(name, spec):
    """The `Benchmark` object of ``name``, made from its YAML's content."""
    return importlib.import_module(f"study.benchmarks.{name}").Benchmark(spec)

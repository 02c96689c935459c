"""The check of a host's GPUs: whether NVML, the device mapping, the limits and the training are right.

Its modules import only what a Python with PyTorch, NumPy and nvidia-ml-py has; all else is imported where it is used,
and what is not there makes a check not possible. PyTorch is imported by name: `study.backends` needs packages that such
a Python lacks.
"""

"""The check of a host's GPUs: study ``gpu_check`` is run on them, and what it measured is judged."""

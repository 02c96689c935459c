"""Time by operation within training steps: which ran, which waited for what, and when nothing ran."""

"""Measurements of a run: phases, power, timeline, profile, memory, I/O counters, heartbeats."""

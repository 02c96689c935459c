"""Horovod's timeline: read as a stream, and what it tells of broadcast and allreduce (icpp2019, Figures 7, 12, 19)."""

"""Horovod's timeline, read as a stream, and its broadcast and allreduce (icpp2019, Figures 7, 12, 19)."""

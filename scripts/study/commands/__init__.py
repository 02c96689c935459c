"""The verbs of `study` and the steps that rules call, as click commands.

What a command needs is imported in its function: help is fast, and the digest of a step's code covers that step alone.
"""

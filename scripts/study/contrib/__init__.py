"""What stands beside the study: exports, readers of others' points, checks of hardware. Nothing imports it."""

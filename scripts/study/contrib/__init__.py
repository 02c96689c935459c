"""What stands beside the study: exports, readers of other tools' logs, checks of hardware. Nothing imports it."""

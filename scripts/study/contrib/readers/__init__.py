"""Points for `study predict` from what other tools wrote: logs of training programs, and exports of trackers."""

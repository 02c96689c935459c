"""Where runs execute: launchers, batch systems, queues, packing of small runs."""

"""What every package uses: errors, files, configuration, paths, provenance, code version, statistics."""

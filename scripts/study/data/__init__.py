"""Datasets: from files to samples. Sources, conversion, formats, loaders, loader timing, page cache."""

"""What the rules call: the only package of the library that imports Snakemake."""

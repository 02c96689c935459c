"""Ensembles: members that train at once on one stream of samples, and the ways in which ranks share its blocks."""

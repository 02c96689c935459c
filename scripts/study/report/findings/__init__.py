"""Findings: what a study's runs say about a question, in one sentence with an interval. Each is declared in YAML."""

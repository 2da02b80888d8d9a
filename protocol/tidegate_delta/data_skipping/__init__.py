"""Predicates, file statistics, and which files a predicate can skip."""

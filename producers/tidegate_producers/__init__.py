"""Writes Delta tables from Spark and Python, by proposals to the committer."""

"""Commit files that a writer brings byte for byte."""

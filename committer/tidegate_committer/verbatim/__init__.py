"""Commit entries that a writer brings byte for byte."""

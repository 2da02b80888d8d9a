"""Writes rows to Parquet data files, and makes add actions with statistics."""

"""Parquet out: rows become data files, and add actions with honest statistics (pyarrow)."""

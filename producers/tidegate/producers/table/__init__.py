"""The Table object: create, delete, history, and the table as a DataFrame."""

from tidegate.producers.table.table import Table

__all__ = ["Table"]

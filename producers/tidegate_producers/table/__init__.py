"""The Table object: create, delete, history, and the table as a DataFrame."""

from tidegate_producers.table.table import Table

__all__ = ["Table"]

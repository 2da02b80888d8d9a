"""The schema: types, Arrow, partition values, column mapping, widening, and how it changes."""

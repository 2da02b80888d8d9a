"""The schema: types, Arrow, partition values."""

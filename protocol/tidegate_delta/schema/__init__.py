"""The schema: types, Arrow, partition values, column mapping and type widening."""

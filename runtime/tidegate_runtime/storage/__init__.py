"""Stores of tables: put-if-absent on file systems and object stores."""

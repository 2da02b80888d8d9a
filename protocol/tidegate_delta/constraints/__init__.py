"""CHECK constraints, default values, generated and identity columns."""

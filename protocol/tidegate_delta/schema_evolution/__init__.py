"""Changes of a schema: ALTER TABLE, schema merging and type changes."""

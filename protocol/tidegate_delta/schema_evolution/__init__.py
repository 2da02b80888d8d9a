"""Changes of a schema: ALTER TABLE, merged schemas, type changes."""

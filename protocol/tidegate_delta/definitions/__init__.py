"""metaData and protocol together: what a table is, and whether a change of it is valid."""

"""Table definitions (metaData with protocol): whether one, or a change of one, is valid."""

"""VACUUM: deletes the files that no version needs which the retention, or anyone, covers."""

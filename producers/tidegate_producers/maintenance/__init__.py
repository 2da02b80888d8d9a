"""`tidegate maintain`: packs small files, purges deleted rows and vacuums, by proposals alone."""

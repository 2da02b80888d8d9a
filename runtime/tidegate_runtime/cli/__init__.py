"""The `tidegate` command: verbs of its own, and those that the installed services bring."""

"""The `tidegate` command: its own subcommands, and those of the installed services."""

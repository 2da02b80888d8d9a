"""The subcommands that the checkpointer adds to `tidegate table`."""

"""The operations page: an installation in a browser."""

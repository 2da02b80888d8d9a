"""The doors to the world, and what stands next to a door."""

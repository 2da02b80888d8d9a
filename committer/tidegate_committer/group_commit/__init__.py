"""Which proposals share an entry, in which order; what its version determines; its bytes."""

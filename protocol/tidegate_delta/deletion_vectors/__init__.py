"""Deletion vectors: descriptors, roaring bitmaps, Z85."""

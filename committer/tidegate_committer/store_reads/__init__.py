"""Reads of stores beside the loop: whole tables, new versions, and checks of what others did."""

"""Turns rows into a proposal: checks of columns, files, registration, ALTER TABLE."""

"""From rows to a proposal: checks of columns, files, registration, ALTER TABLE."""

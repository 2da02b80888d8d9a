"""A demo on real data: writes a year of flights with kills and races, and checks the result."""

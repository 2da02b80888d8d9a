"""The checks of `tidegate doctor`: each returns what it found, and how to mend what is wrong."""

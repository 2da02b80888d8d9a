"""The only writer of commits."""

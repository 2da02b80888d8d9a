"""`tidegate ingest` as a program for Spark's operator, with the command's options."""

from tidegate_producers.ingest.__main__ import app

if __name__ == "__main__":
    app()

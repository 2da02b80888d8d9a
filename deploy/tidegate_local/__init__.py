"""Kafka and every service on this machine: `tidegate up`, `down` and `kafka`."""

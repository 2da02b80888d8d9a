"""One topic partition after the other: take, decide, PUT, tell."""

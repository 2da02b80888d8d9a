"""Following commits on Faust: doorbells in, effects first, then acks."""

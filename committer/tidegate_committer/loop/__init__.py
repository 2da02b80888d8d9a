"""The loop: for each topic partition read proposals, decide, PUT entries, publish outcomes."""

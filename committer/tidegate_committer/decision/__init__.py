"""`decide` and `evolve`, the steps of a decision in their order, and its types."""

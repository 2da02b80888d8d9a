"""File actions: as Arrow columns, their statistics, and the predicates that choose among them."""

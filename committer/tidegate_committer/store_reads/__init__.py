"""What is asked of stores, aside from the loop: tables whole, their tails, and what others did."""

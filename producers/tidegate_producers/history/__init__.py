"""What was committed and refused: history, outcomes, and why."""

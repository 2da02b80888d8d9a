"""What an operator looks at: `tidegate status`, `tidegate doctor`, and the operations page."""

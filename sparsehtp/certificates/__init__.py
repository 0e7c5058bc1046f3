"""What is known about a solution."""

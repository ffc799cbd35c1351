"""Examples of the project: each runs on its own and ends by printing its result."""

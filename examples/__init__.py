"""Show the project at work: each example runs by itself and ends by printing its proof."""

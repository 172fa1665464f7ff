"""What processes tell one another and the world: wire formats, logs, metrics."""

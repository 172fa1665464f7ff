"""Who decides in a simulation: the live manager's own functions, and other projects' rules built from descriptions."""

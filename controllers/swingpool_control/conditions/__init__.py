"""Status: conditions and what a user reads."""

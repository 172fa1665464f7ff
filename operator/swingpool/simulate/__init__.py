"""`swingpool simulate`: reads what to simulate, runs it, and shows what was found."""

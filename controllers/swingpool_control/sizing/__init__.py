"""How many workers each pool needs, and which one to lose."""

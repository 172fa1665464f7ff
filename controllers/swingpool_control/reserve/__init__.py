"""Workers that sleep instead of ending, and are woken before new ones are made: a pool's warm reserve."""

"""A whole cluster under a virtual clock, driven by the very functions that run live."""

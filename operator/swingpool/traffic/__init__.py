"""Traffic for simulations: traces that are read line by line, and loads that are drawn from a description."""

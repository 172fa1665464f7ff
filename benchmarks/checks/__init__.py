"""Parts of the benchmark `cross_checks`: the simulator against theory, a live process, and what others published."""

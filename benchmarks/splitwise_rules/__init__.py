"""Rules of Splitwise's published simulator, where they differ from ours: machines, scheduling, times, objectives."""

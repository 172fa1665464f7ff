"""`make demo`: a real cluster, a real installation, real HTTP load, and swing workers that follow it."""

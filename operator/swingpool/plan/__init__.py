"""`swingpool plan`: reads, simulates and shows; what is decided lies in the core."""

"""What `swingpool explain` shows: why a cluster is as it is, live or from recorded decisions."""

"""`swingpool top`: the workers of a cluster, their roles and queues, and the last decisions, live."""

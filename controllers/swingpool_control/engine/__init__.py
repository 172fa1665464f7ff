"""The performance model: steps, KV capacity, transfer, profiles."""

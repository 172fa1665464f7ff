"""The simulated worker: vLLM's HTTP API with a profile's latencies."""

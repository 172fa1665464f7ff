"""The simulated worker: vLLM's HTTP API, metrics and KV handshake, with the latencies of a performance profile."""

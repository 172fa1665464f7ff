"""Real vLLM on the CPU: the claims about workers, checked on the engine itself."""

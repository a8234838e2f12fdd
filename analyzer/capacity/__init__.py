"""A model of vLLM's engine: requests in, step by step, latencies and metrics out."""

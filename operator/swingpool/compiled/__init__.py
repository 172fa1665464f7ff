"""The core, compiled: faster simulations from the same sources."""

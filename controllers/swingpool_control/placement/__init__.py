"""Where a request goes: which worker computes its prompt, which one generates, and what to do when a role is empty."""

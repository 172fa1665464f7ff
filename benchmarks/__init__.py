"""Benchmarks: `python -m benchmarks.NAME`; each figure in docs/benchmarks.md has its command here."""

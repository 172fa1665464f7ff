"""Measures a live worker, bounded and resumable, and makes a performance profile of it."""

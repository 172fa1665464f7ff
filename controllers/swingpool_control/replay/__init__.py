"""Decisions as data: written down with all that they stood on, read back, and made again."""

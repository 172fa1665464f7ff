"""Measurements of engines, and the readers of the files in which others publish theirs."""

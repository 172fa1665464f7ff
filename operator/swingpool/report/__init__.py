"""Self-contained HTML pages of results: one file that opens anywhere, without a network."""

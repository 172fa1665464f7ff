"""Which workers compute a request."""

"""Which role each swing worker has, and how it gets there."""

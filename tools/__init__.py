"""Tools that keep the repository in order."""

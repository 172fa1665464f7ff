"""A whole Kubernetes for development and end-to-end tests, on one machine, with or without a Docker engine."""

"""The provider for machines with a Docker engine: kind."""

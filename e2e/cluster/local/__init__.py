"""The provider for machines without a Docker engine: real components and nodes, confined in namespaces."""

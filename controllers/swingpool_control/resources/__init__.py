"""The Kubernetes objects that a spec asks for."""

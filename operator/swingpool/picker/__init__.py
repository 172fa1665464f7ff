"""The endpoint picker beside Envoy."""

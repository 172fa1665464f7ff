"""Gateways of others before our endpoint picker: their own control planes, on a cluster of ours."""

"""Routers side by side on loopback: stand-ins for workers that take no time, a load, and each router's processes."""

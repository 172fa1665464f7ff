"""Failures and changes on a real cluster under load, each with what must hold."""

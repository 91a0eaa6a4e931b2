"""Implements `evalgrad compare`, on the built-in tasks and on the user's data."""

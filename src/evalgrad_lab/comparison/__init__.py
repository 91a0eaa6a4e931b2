"""`evalgrad compare` at work: the built-in tasks, and the user's own data."""

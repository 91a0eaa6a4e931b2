"""Training on the user's own data: `evalgrad train`, `evaluate` and `predict`. One file per
subject.
"""

"""Everything that is trained on: embedded, fetched by `make data`, in the official layouts of the
papers' data sets, and the user's own files.
"""

"""Data sets: embedded ones, those that `make data` fetches, the papers' data sets in their official
layouts, and the user's own files.
"""

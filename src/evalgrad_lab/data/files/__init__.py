"""Readers of the user's own files: folders of images, `.npz` arrays and CSV tables."""

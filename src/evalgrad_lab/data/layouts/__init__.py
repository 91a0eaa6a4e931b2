"""Readers of the folders in which the papers' data sets are published; nothing is downloaded,
copied or rewritten.

Each module has one function from the root folder and the split to a data set of (image, target)
tensors.
"""

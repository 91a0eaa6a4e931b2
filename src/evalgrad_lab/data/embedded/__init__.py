"""Embedded data: pure functions from a seed to tensors. scikit-learn's own data or drawn here;
nothing is downloaded.
"""

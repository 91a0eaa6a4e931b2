"""The lab of evalgrad: train on the metric you are judged by, and compare it with tuned baselines.

It comes with the library but needs more than torch: pip install 'evalgrad[lab]'.
"""

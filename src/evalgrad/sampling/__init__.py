"""Which samples a network sees: equibatch, and sampling driven by performance."""

from evalgrad.sampling.equibatch import EquibatchSampler
from evalgrad.sampling.performance import PerformanceSampler
from evalgrad.sampling.presence import class_presence

__all__ = ["EquibatchSampler", "PerformanceSampler", "class_presence"]

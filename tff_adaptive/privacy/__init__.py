"""Differential privacy: the Gaussian mechanism and its accounting."""

from tff_adaptive.privacy.mechanism import Budget

__all__ = ['Budget']

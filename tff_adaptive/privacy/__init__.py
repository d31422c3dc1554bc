"""Differential privacy: the mechanism that clips and noises, and its account."""

from tff_adaptive.privacy.mechanism import Budget

__all__ = ['Budget']

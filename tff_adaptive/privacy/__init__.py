"""Differential privacy: the mechanism that clips and noises, its accounting."""

from tff_adaptive.privacy.mechanism import Budget

__all__ = ['Budget']

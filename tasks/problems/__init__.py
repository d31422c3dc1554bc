"""Convex problems and users' tables, one module each."""

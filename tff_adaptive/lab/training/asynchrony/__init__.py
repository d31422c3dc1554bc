"""Asynchronous training: its schedule in virtual time, and its rounds."""

"""Asynchronous training: a schedule in virtual time, and its rounds."""

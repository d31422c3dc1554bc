"""Flags of the command line, and the checked settings made of them."""

"""Command-line flags, and the checked settings resolved from them."""

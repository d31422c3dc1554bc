"""From words on a command line to checked settings."""

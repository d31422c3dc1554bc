"""Text tasks, one module each, and their shared parts."""

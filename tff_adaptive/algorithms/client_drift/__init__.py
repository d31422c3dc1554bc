"""Methods that correct client drift, one per file."""

"""Methods whose clients adapt their own step sizes, one per file."""

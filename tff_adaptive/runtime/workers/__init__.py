"""Worker processes, here and on other machines, and the contexts on them."""

"""Published settings as tables, one module per paper."""

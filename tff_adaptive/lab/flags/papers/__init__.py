"""Published settings: a module a paper, as tables."""

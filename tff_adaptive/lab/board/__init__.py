"""A board of methods: how much each needs, when all are tuned alike."""

"""The contexts on a Ray cluster, and the actors that they run clients on."""

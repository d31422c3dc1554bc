"""The state that clients keep between rounds."""

"""The states that clients keep between rounds."""

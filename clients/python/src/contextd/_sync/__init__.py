"""The face for programs with threads."""

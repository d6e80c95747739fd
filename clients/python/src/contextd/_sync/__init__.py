"""The API for programs with threads."""

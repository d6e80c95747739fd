"""Shared by both APIs: no sockets, no threads, no clock."""

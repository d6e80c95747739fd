"""The face for programs with asyncio."""

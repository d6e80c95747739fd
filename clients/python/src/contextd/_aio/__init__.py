"""The API for programs with asyncio."""

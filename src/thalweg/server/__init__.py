"""An OpenAI-compatible HTTP server over `AsyncEngine`."""

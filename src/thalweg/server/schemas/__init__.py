"""The bodies of requests. A field that is not here is refused by name."""

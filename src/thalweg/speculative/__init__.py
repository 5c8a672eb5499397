"""Guessing tokens ahead, so that one pass can compute several. A guess changes no answer."""

"""Thalweg: an inference engine for hybrid LLMs."""

"""Trains the tiny `qwen3_5` checkpoint that ships with Thalweg."""

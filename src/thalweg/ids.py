"""The two reserved ids. Blocks and slots are plain ints otherwise."""

from __future__ import annotations

from typing import Final

NULL: Final = 0
"""Slot 0 is the zero state every new sequence starts from; block 0 is never read."""

SKIP: Final = -1
"""In `slot_mapping` and `store_slots`: do not store this row."""

"""A JSON object of a checkpoint's configuration, read field by field. Torch-free."""

from __future__ import annotations

import json
from sys import float_info
from typing import TYPE_CHECKING, Any

from thalweg.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

MOST = 2**31 - 1
"""No size is larger: ids and positions are int32."""
LARGEST = float_info.max
"""JSON has integers that no float can hold."""


class Fields:
    """Typed access to the fields of one JSON object; null counts as absent.

    Remembers what was asked for, so that the load report can say which fields nothing read.
    Every getter raises `CheckpointError` naming field, value and what is allowed.
    """

    def __init__(self, values: Mapping[str, Any], where: str) -> None:
        self._values = {name: value for name, value in values.items() if value is not None}
        self._where = where
        self._read: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def unread(self) -> tuple[str, ...]:
        return tuple(sorted(self._values.keys() - self._read))

    def get(self, name: str) -> Any:
        """The value as JSON has it, or None."""
        self._read.add(name)
        return self._values.get(name)

    def integer(
        self, name: str, default: int | None = None, *, least: int = 1, most: int = MOST
    ) -> int:
        value = self._value(name, default)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            allowed = f">= {least}" if most == MOST else f"from {least} to {most}"
            raise self.error(name, f"an integer {allowed}")
        return value

    def number(self, name: str, default: float | None = None) -> float:
        """A positive, finite number."""
        value = self._value(name, default)
        if (
            not isinstance(value, int | float)
            or isinstance(value, bool)
            or not 0 < value <= LARGEST
        ):
            raise self.error(name, "a number > 0")
        return float(value)

    def flag(self, name: str, *, default: bool) -> bool:
        value = self._value(name, default)
        if not isinstance(value, bool):
            raise self.error(name, "true or false")
        return value

    def string(self, name: str, default: str | None = None) -> str:
        value = self._value(name, default)
        if not isinstance(value, str):
            raise self.error(name, "a string")
        return value

    def strings(self, name: str) -> tuple[str, ...]:
        """A list of strings; absent is empty."""
        value = self._value(name, [])
        if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
            raise self.error(name, "a list of strings")
        return tuple(value)

    def integers(self, name: str) -> tuple[int, ...]:
        """An integer >= 0 or a list of them; absent is empty."""
        value = self._value(name, [])
        values = value if isinstance(value, list) else [value]
        if not all(isinstance(v, int) and not isinstance(v, bool) and v >= 0 for v in values):
            raise self.error(name, "an integer >= 0 or a list of them")
        return tuple(values)

    def section(self, name: str) -> Fields | None:
        """A nested object, or None where there is none."""
        value = self.get(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self.error(name, "an object")
        return Fields(value, f"{self._where} {name}")

    def nothing(self, name: str) -> Fields:
        """An empty object in the place of a section that is not there."""
        return Fields({}, f"{self._where} {name}")

    def only(self, name: str, *allowed: Any) -> None:
        """Refuses every value but `allowed`; absent is fine."""
        if name in self._values and self.get(name) not in allowed:
            raise self.error(name, "only " + " or ".join(json.dumps(v) for v in allowed))

    def at_most(self, name: str, most: int) -> None:
        """Refuses larger integers; does not count as reading the field."""
        value = self._values.get(name)
        if isinstance(value, int) and value > most:
            raise self.error(name, f"at most {most}")

    def error(self, name: str, allowed: str) -> CheckpointError:
        if name not in self._values:
            return CheckpointError(f"{self._where} lacks {name}: {allowed}")
        value = json.dumps(self._values[name], default=repr)
        value = value if len(value) <= 80 else f"{value[:77]}..."
        return CheckpointError(f"{self._where}: {name} = {value} is not supported: {allowed}")

    def _value(self, name: str, default: Any) -> Any:
        value = self.get(name)
        return default if value is None else value


def read_json_object(path: Path) -> dict[str, Any]:
    """The object in a JSON file; anything else is a `CheckpointError`."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{path} holds no JSON object")
    return value

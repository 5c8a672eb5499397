"""Options that belong together are one dataclass; typer sees each field as an option."""

from __future__ import annotations

from dataclasses import MISSING, fields, is_dataclass
from inspect import Parameter, Signature, signature
from typing import TYPE_CHECKING, Any, get_type_hints

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from thalweg.cli.exit_codes import ExitCode


def option_groups(command: Callable[..., ExitCode]) -> Callable[..., ExitCode]:
    """What typer gets in place of `command`, whose parameters are dataclasses of options.

    Fields are annotated as typer wants parameters: `Annotated[type, typer.Option(...)]`, with a
    default.
    """
    groups: dict[str, Any] = get_type_hints(command)
    groups.pop("return")
    assert groups.keys() == signature(command).parameters.keys()
    parameters = [p for group in groups.values() for p in _parameters(group)]

    def run(**values: Any) -> ExitCode:
        return command(
            **{
                name: group(**{field.name: values[field.name] for field in fields(group)})
                for name, group in groups.items()
            }
        )

    run.__name__ = command.__name__
    run.__doc__ = command.__doc__
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]  # inspect reads it
    return run


def _parameters(group: Any) -> Iterator[Parameter]:
    assert is_dataclass(group)
    hints = get_type_hints(group, include_extras=True)
    for field in fields(group):
        assert field.default is not MISSING, f"{field.name} has no default"
        yield Parameter(
            field.name, Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name]
        )

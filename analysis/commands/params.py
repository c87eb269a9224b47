"""What a command takes, said by the annotations of its function, as a command of click.

A parameter is `Annotated[type, Option(...)]` or `Annotated[type, Argument(...)]`; the types are
bool, int, float, str, Path, a list of str, and each of them or None. What has no default is
required.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

import click

from .lazily import Exit

__all__ = ["Argument", "Exit", "Option", "command"]


class Option:
    """An option: its flags (`-o`, `--output`, `--finish/--no-finish`) and what `--help` says.

    `min` is the least of an integer.
    """

    def __init__(
        self, *flags: str, help: str | None = None, metavar: str | None = None,
        min: int | None = None,
    ) -> None:  # fmt: skip
        self.flags, self.help, self.metavar, self.min = flags, help, metavar, min


class Argument(NamedTuple):
    """An argument, and what `--help` says of it."""

    metavar: str
    help: str


class Command(click.Command):
    """A command whose arguments stand in its help, too."""

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Usage, text, arguments, options."""
        self.format_usage(ctx, formatter)
        self.format_help_text(ctx, formatter)
        arguments = [p for p in self.params if isinstance(p, _Argument)]
        if arguments:
            with formatter.section("Arguments"):
                formatter.write_dl([(p.shown, p.said) for p in arguments])
        self.format_options(ctx, formatter)


class _Argument(click.Argument):
    """An argument with words about it (of click itself, only later versions have them)."""

    def __init__(self, name: str, metavar: str, said: str, **options: Any) -> None:
        super().__init__([name], metavar=metavar, **options)
        self.shown = metavar
        default = options.get("default")
        mark = "required" if self.required else f"default: {default}" if default else ""
        self.said = f"{said}  [{mark}]" if mark else said

    def make_metavar(self, *context: Any) -> str:
        """`JOB`, `[JOB]`, `PATH...`, `[PATH]...`."""
        text = self.shown if self.required else f"[{self.shown}]"
        return text if self.nargs == 1 else f"{text}..."

    def get_error_hint(self, *context: Any) -> str:
        """As errors name it."""
        return f"'{self.shown}'"


def command(function: Callable[..., object]) -> Command:
    """The command that calls a function with what its annotations say."""
    hints = get_type_hints(function, include_extras=True)
    params: list[click.Parameter] = []
    listed: list[str] = []
    for name, parameter in inspect.signature(function).parameters.items():
        kind, said = get_args(hints[name])
        kind, many = _plain(kind)
        if many:
            listed.append(name)
        default = parameter.default
        required = default is inspect.Parameter.empty
        options: dict[str, Any] = {"required": required, "type": _type(kind, said)}
        if not required and not many:
            options["default"] = default
        if isinstance(said, Argument):
            nargs = -1 if many else 1
            params.append(_Argument(name, said.metavar, said.help, nargs=nargs, **options))
            continue
        if kind is bool:
            del options["type"]
            options["is_flag"] = True
        params.append(
            click.Option(
                [*said.flags, name],
                help=said.help,
                metavar=said.metavar or _METAVARS.get(kind),
                multiple=many,
                show_default=not required and kind is not bool and default is not None,
                **options,
            )
        )

    def call(**given: Any) -> object:
        for name in listed:
            given[name] = list(given[name]) or None
        return function(**given)

    return Command(function.__name__, callback=call, params=params, help=_text(function))


_METAVARS = {int: "N", float: "X", str: "TEXT"}


def _plain(kind: Any) -> tuple[Any, bool]:
    """(the type without `| None` and `list`, whether there are many)."""
    if get_origin(kind) is not list and get_args(kind):
        (kind,) = (k for k in get_args(kind) if k is not type(None))
    if get_origin(kind) is list:
        return get_args(kind)[0], True
    return kind, False


def _type(kind: Any, said: Option | Argument) -> Any:
    least = getattr(said, "min", None)
    if least is not None:
        return click.IntRange(min=least)
    return click.Path(path_type=Path) if kind is Path else kind


def _text(function: Callable[..., object]) -> str:
    return inspect.cleandoc(function.__doc__ or "")

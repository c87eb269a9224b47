"""Commands that are imported when they are asked for: `retime --help` needs none of them."""

from __future__ import annotations

from importlib import import_module
from typing import NamedTuple

import click


class Exit(Exception):
    """Ends a command with an exit code."""

    def __init__(self, exit_code: int = 0) -> None:
        self.exit_code = exit_code


class Named(NamedTuple):
    """A command: its name, its module here, and its line in the list of commands."""

    name: str
    module: str
    help: str


class Commands(click.Group):
    """A group of such commands, in their order."""

    def __init__(self, named: tuple[Named, ...], **options: object) -> None:
        super().__init__(**options)  # pyright: ignore[reportArgumentType]
        self.named = {n.name: n for n in named}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Their names."""
        return list(self.named)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """One of them, imported; None where there is no such."""
        named = self.named.get(cmd_name)
        if named is None:
            return None
        from .params import command

        module = import_module(f".{named.module}", __package__)
        return command(getattr(module, cmd_name))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Their list, without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl([(n.name, n.help) for n in self.named.values()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that is named first. Raises UsageError, with what may have been meant."""
        if args and args[0] not in self.named and not args[0].startswith("-"):
            from difflib import get_close_matches

            close = get_close_matches(args[0], self.named)
            meant = f" Did you mean {' or '.join(map(repr, close))}?" if close else ""
            ctx.fail(f"No such command {args[0]!r}.{meant}")
        return super().resolve_command(ctx, args)

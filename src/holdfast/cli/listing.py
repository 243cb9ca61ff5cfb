"""How a command with subcommands lists them: each with its whole first sentence, also on a narrow terminal."""

from __future__ import annotations

import inspect
from typing import Any

from typer.core import TyperGroup


class Listing(TyperGroup):
    """Click cuts such a sentence at 45 letters, often in front of the word that matters."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            if command is not None and not command.short_help and command.help:
                first = " ".join(inspect.cleandoc(command.help).split("\n\n")[0].split())
                command.short_help = first.partition(". ")[0].rstrip(".") + "."
        super().format_commands(ctx, formatter)

"""`holdfast groups`: which groups there are, who owns what, their lag; and moving offsets.

The columns are those of kafka-consumer-groups.sh. Each subcommand is in one of the modules `groups_*`; this one only
puts them together.
"""

from __future__ import annotations

import typer

from holdfast.cli.groups_deleted import delete, delete_offsets
from holdfast.cli.groups_moved import export_offsets, import_offsets, reset_offsets
from holdfast.cli.groups_served import serve
from holdfast.cli.groups_shown import describe, list_groups
from holdfast.cli.groups_watched import check
from holdfast.cli.listing import Listing

app = typer.Typer(
    cls=Listing, add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None
)
app.command(name="list")(list_groups)
app.command()(describe)
app.command()(check)
app.command()(serve)
app.command(name="reset-offsets")(reset_offsets)
app.command(name="export")(export_offsets)
app.command(name="import")(import_offsets)
app.command()(delete)
app.command(name="delete-offsets")(delete_offsets)

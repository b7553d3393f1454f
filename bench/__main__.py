"""`python -m bench` lists the scenarios, `python -m bench <scenario>` runs one.

Every plain module beside this one is a scenario: it holds a click command called `command`, whose short help
is what the list shows. What scenarios share lives in `bench/harness/`.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

import click

import bench


class Scenarios(click.Group):
    """A group whose commands are the scenario files; one is imported only when it is run or listed."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return sorted(
            module.name.replace("_", "-")
            for module in iter_modules(bench.__path__)
            if not module.ispkg and not module.name.startswith("_")
        )

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        command = import_module(f"bench.{cmd_name.replace('-', '_')}").command
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in self.list_commands(ctx):
            known = ", ".join(self.list_commands(ctx))
            raise click.UsageError(f"there is no scenario {args[0]!r}; there are: {known}", ctx)
        return super().resolve_command(ctx, args)


@click.group(
    cls=Scenarios,
    invoke_without_command=True,
    subcommand_metavar="SCENARIO [OPTIONS]",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.pass_context
def main(ctx: click.Context) -> None:
    """Measure Mainspring. Results go to stdout, progress to stderr; Ctrl-C prints what has been measured.

    `python -m bench SCENARIO --help` shows a scenario's options.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


if __name__ == "__main__":
    main(prog_name="python -m bench")

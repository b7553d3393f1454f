"""`mainspring completion`: the script that teaches a shell our commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the completion script of a SHELL.

    \b
    bash:  eval "$(mainspring completion bash)"        in ~/.bashrc
    zsh:   eval "$(mainspring completion zsh)"         in ~/.zshrc
    fish:  mainspring completion fish > ~/.config/fish/completions/mainspring.fish
    """
    completion = get_completion_class(shell)
    assert completion is not None
    root = ctx.find_root()
    click.echo(completion(root.command, {}, "mainspring", "_MAINSPRING_COMPLETE").source())

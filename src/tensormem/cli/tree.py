"""Owns: `tensormem tree`: who stands on whom in a trace, and what passed each."""

import click
from rich.text import Text
from rich.tree import Tree

from tensormem.cli.files import check_free, reading, write_json
from tensormem.cli.options import output_options, screen_options, trace_argument
from tensormem.cli.plain_text import shown
from tensormem.cli.screen import screen
from tensormem.reports.traces import TreeNode, tree_of
from tensormem.units import format_size

_VERSION = 1


@click.command()
@trace_argument()
@output_options
@screen_options
def tree(
    *,
    trace: str,
    output: str | None,
    force: bool,
    as_json: bool,
    no_color: bool,
    quiet: bool,
    verbose: bool,
) -> None:
    """The resources of a trace as a tree: what makes memory at the root, what stands on it above.

    With -v also those through which nothing passed; with -o as JSON into a file.
    """
    check_free(output, force=force)
    with reading(trace) as opened:
        roots = tree_of(opened, idle=verbose)
    if as_json or output is not None:
        document = {"version": _VERSION, "source": trace, "roots": [root.as_json() for root in roots]}
        write_json(document, output, force=force)
        return
    console = screen(no_color=no_color)
    if not roots:
        console.print("No resource reported anything.")
    for root in roots:
        console.print(_draw(root, Tree(_label(root))))
    if not quiet:
        console.print(f"Next: tensormem stats {trace}", soft_wrap=True, markup=False)


def _draw(node: TreeNode, drawn: Tree) -> Tree:
    for above in node.above:
        _draw(above, drawn.add(_label(above)))
    return drawn


def _label(node: TreeNode) -> Text:
    text = Text(shown(f"{node.reporter} "), style="bold").append(shown(f"[{node.reporter.space}]"), style="dim")
    if node.peak is None:
        return text.append("  nothing passed", style="dim")
    text.append(f"  peak {format_size(node.peak.nbytes)} in {node.peak.blocks:,} blocks", style="")
    if node.peak.final_bytes:
        text.append(f", {format_size(node.peak.final_bytes)} left", style="yellow")
    return text

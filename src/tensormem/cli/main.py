"""Owns: the group `tensormem` and the options that every command has."""

import click

import tensormem
from tensormem.cli.diff import diff
from tensormem.cli.doctor import doctor
from tensormem.cli.export import export
from tensormem.cli.merge import merge
from tensormem.cli.plan import plan
from tensormem.cli.record import record
from tensormem.cli.replay import replay
from tensormem.cli.report import report
from tensormem.cli.selftest import selftest
from tensormem.cli.stats import stats
from tensormem.cli.top import top
from tensormem.cli.tree import tree
from tensormem.cli.view import view


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(tensormem.__version__, prog_name="tensormem")
def cli() -> None:
    """One memory layer for tensors: what it can do on this machine, and what a program did with it."""


for command in (diff, doctor, export, merge, plan, record, replay, report, selftest, stats, top, tree, view):
    cli.add_command(command)

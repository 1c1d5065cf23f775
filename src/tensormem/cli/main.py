"""Owns: the group `tensormem` and the options that every command has."""

import click

import tensormem
from tensormem.cli.doctor import doctor
from tensormem.cli.plan import plan
from tensormem.cli.replay import replay
from tensormem.cli.selftest import selftest


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(tensormem.__version__, prog_name="tensormem")
def cli() -> None:
    """One memory layer for tensors: what it can do on this machine."""


cli.add_command(doctor)
cli.add_command(plan)
cli.add_command(replay)
cli.add_command(selftest)

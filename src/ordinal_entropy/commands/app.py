"""All commands, in the order in which the help names them."""

from typing import Annotated

import typer

from ordinal_entropy import __version__
from ordinal_entropy.commands import data
from ordinal_entropy.commands.comparing import compare
from ordinal_entropy.commands.diagnosing import diagnose
from ordinal_entropy.commands.doctor import doctor
from ordinal_entropy.commands.finding import best
from ordinal_entropy.commands.methods import show_methods
from ordinal_entropy.commands.reporting import summarize, write_report
from ordinal_entropy.commands.reproducing import reproduce
from ordinal_entropy.commands.training import evaluate, train
from ordinal_entropy.commands.using import export, predict

app = typer.Typer(
    name="ordinal-entropy",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode="markdown",
    help="""Regularizers for deep regression: train, compare, reproduce.

Begin with

    ordinal-entropy compare linear --methods baseline,oe --seeds 5 --preset quick

which trains ten small networks in a minute or two on a CPU and says whether ordinal entropy helped.
`ordinal-entropy reproduce --list` names the tables and figures of the paper, `ordinal-entropy doctor` says what is
installed. Interrupted commands resume when run again.""",
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit()


@app.callback()
def _top(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    pass


app.command()(reproduce)
app.command()(compare)
app.command()(best)
app.command()(train)
app.command()(evaluate)
app.command()(predict)
app.command()(export)
app.command()(diagnose)
app.command("report")(write_report)
app.command()(summarize)
app.command("methods")(show_methods)
app.command()(doctor)
app.add_typer(data.app, name="data")

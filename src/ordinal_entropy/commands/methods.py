"""``methods``: what there is, and its options."""

from typing import Annotated

import typer
from rich.text import Text

from ordinal_entropy import methods
from ordinal_entropy.commands import errors, screen
from ordinal_entropy.results import terminal


def show_methods(
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="One of them, or several joined by +.")] = "",
) -> None:
    """The methods there are; of one, what it does, what a loop must let it do, and its options.

        ordinal-entropy methods hl-gauss+lds+oe

    Methods are joined by +: one head or prediction loss, one weighting, one mixing, one smoothing, any number of terms.
    Options of one part are set by --set method.PART.OPTION=VALUE.
    """
    with errors.one_sentence():
        console = screen.output()
        if not name:
            rows = [(each, _kind(each), methods.describe(each)) for each in methods.names()]
            console.print(terminal.grid(["method", "kind", "what it does"], rows))
            return
        methods.create(name)
        for part in methods.split(name):
            console.print(Text(f"{part}: {methods.describe(part)}", style="bold"), soft_wrap=True)
            for need in methods.create(part).requirements():
                console.print(f"  {methods.what_is_needed(need)}", soft_wrap=True)
            values = methods.option_defaults(part).items()
            shown = {f"method.{part}.{option}": "none" if value is None else value for option, value in values}
            terminal.show_key_values(console, shown)


def _kind(method: str) -> str:
    return next(iter(methods.create(method).requirements()), "baseline")

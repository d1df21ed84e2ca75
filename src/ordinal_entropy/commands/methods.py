"""``methods``: what there is, and its options."""

from typing import Annotated

import typer
from rich.text import Text

from ordinal_entropy import methods, tasks
from ordinal_entropy.balance import FRACTION
from ordinal_entropy.commands import errors, screen
from ordinal_entropy.results import terminal

_STRENGTH = f"gradient-balanced at {FRACTION:g} of the task loss's gradient unless given"


def show_methods(
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="One of them, or several joined by +.")] = "",
) -> None:
    """The methods there are; of one, what it does, what a loop must let it do, and its options.

        ordinal-entropy methods hl-gauss+lds+oe

    Methods are joined by +: one head or prediction loss, one weighting, one mixing, one smoothing, one averaging, any
    number of terms. Options of one part are set by --set method.PART.OPTION=VALUE.
    """
    with errors.one_sentence():
        console = screen.output()
        if not name:
            rows = [
                (each, methods.kind(each), "yes" if _maps(each) else "", methods.describe(each)) for each in _by_kind()
            ]
            console.print(terminal.grid(["method", "kind", "maps", "what it does"], rows))
            console.print("maps: trains on depth and crowd too, whose targets are maps.")
            console.print(f"strength of a term: {_STRENGTH}.", soft_wrap=True)
            for task in tasks.names():
                models = list(tasks.classical(task).items())
                if models:
                    console.print(f"\nRows of {task} that are no methods")
                    console.print(terminal.grid(["row", "what it is"], models))
            return
        for task in tasks.names():
            if name in tasks.classical(task):
                console.print(Text(f"{name}: {tasks.classical(task)[name]}", style="bold"), soft_wrap=True)
                console.print(f"  a row of {task}, which is no method and joins none", soft_wrap=True)
                return
        methods.create(name)
        for part in methods.split(name):
            console.print(Text(f"{part}: {methods.describe(part)}", style="bold"), soft_wrap=True)
            made = methods.create(part)
            (own,) = made.parts.values()
            about = {"paper": own.paper, "cost": own.cost, "maps": "" if made.takes_maps(part) else "rows only"}
            if made.has_terms:
                about["strength"] = _STRENGTH
            for what, text in about.items():
                if text:
                    console.print(f"  {what}: {text}", soft_wrap=True, markup=False)
            for need in made.requirements():
                console.print(f"  {methods.what_is_needed(need)}", soft_wrap=True)
            values = methods.option_defaults(part).items()
            shown = {f"method.{part}.{option}": "none" if value is None else value for option, value in values}
            terminal.show_key_values(console, shown)


def _by_kind() -> list[str]:
    kinds = ["baseline", *methods.KINDS]
    return sorted(methods.names(), key=lambda name: kinds.index(methods.kind(name)))


def _maps(method: str) -> bool:
    return methods.create(method).takes_maps(method)

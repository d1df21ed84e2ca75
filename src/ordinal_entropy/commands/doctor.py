"""``doctor``: what is installed."""

from rich.text import Text

from ordinal_entropy import environment, kernels
from ordinal_entropy.commands import screen
from ordinal_entropy.environment import torchvision_problem
from ordinal_entropy.results import terminal


def doctor() -> None:
    """What is installed, what it runs on, and which kernels are in use."""
    console = screen.output()
    parts = {name: version or "not installed" for name, version in environment.optional_parts().items()}
    problem = torchvision_problem()
    if problem is not None:
        parts["torchvision"] += f" installed, cannot be imported: {problem}"
    for title, content in (
        ("Here", environment.environment()),
        ("Kernels for pairs", kernels.describe()),
        ("Optional parts", parts),
    ):
        console.print(Text(title, style="bold"))
        terminal.show_key_values(console, {key: value or "none" for key, value in content.items()})
    extras = environment.missing_extras()
    if extras:
        command = f"pip install 'ordinal-entropy[{','.join(extras)}]'"
        console.print(f"Parts that are not installed come with: {command}", soft_wrap=True)

"""Every method has a page, from one template, and the table of docs/methods.md leads there."""

import importlib.util
from pathlib import Path

import pytest

from ordinal_entropy import methods
from ordinal_entropy.methods.ordinal_entropy import DESCRIPTIONS

DOCS = Path(__file__).parents[2] / "docs"
PLACE = DOCS.parent / "benchmarks" / "measured.py"
NAMES = [name for name in methods.names() if name != "baseline" and name not in DESCRIPTIONS]


@pytest.mark.parametrize("name", NAMES)
def test_a_page(name):
    text = (DOCS / "methods" / f"{name}.md").read_text()
    assert f"(`{name}`)" in text.splitlines()[0]
    assert f"methods/{name}.md" in (DOCS / "methods.md").read_text()
    for heading in ("Formula", "Options", "Needs and cost", "Example"):
        assert f"\n## {heading}\n" in text
    (part,) = methods.create(name).parts.values()
    assert part.kind in text and (part.paper == "" or "**Paper.**" in text)
    for option, default in methods.option_defaults(name).items():
        if option not in ("strength", "balance", "anneal"):
            assert f"`{option}`" in text, option
            assert default is None or str(default).lower().removesuffix(".0") in text.lower(), (option, default)


def test_every_method_of_a_paper_says_which():
    without = {"l1", "l2"}
    assert {name for name in NAMES if not next(iter(methods.create(name).parts.values())).paper} == without


@pytest.mark.parametrize("name", NAMES)
def test_what_was_measured_is_as_in_the_files(name):
    measured = importlib.util.module_from_spec(spec := importlib.util.spec_from_file_location("measured", PLACE))
    spec.loader.exec_module(measured)
    text = (DOCS / "methods" / f"{name}.md").read_text()
    assert measured.section(name) in text and measured.page(text, name) == text

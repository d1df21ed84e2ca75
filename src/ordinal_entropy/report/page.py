"""One HTML file of sections: the template filled, its data and scripts inside."""

import base64
import hashlib
import json
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from ordinal_entropy import __version__
from ordinal_entropy.report import charts
from ordinal_entropy.report.reading import LeftOut, as_read
from ordinal_entropy.report.sections import Section
from ordinal_entropy.results.figures import style

_MOST_LEFT_OUT = 8  # that are named at once


def page(sections: Sequence[Section], left_out: Sequence[LeftOut], *, title: str, folder: str, command: str) -> str:
    """The HTML. All texts are escaped, all data is JSON; only the scripts that belong to the page may run.

    Args:
        sections: in their order.
        left_out: what is not on the page, and why.
        title: of the page.
        folder: that it was made of.
        command: that writes the page again.
    """
    try:
        from jinja2 import Environment, StrictUndefined
        from markupsafe import Markup
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise ImportError(
            f"the page needs plotly and jinja2: pip install 'ordinal-entropy[report]', then {command}"
        ) from error

    here = files("ordinal_entropy.report")
    style, script, template = (
        (here / name).read_text(encoding="utf-8") for name in ("page.css", "page.js", "page.html")
    )
    plotly = get_plotlyjs().replace("\r\n", "\n") if any(section.charts for section in sections) else ""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    rendered = environment.from_string(template).render(
        title=title,
        version=__version__,
        policy=f"default-src 'none'; script-src {_hash(plotly)} {_hash(script)}; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'",
        sections=sections,
        left_out=left_out,
        most_left_out=_MOST_LEFT_OUT,
        folder=folder,
        command=command,
        style=Markup(style),
        plotly=Markup(plotly),
        script=Markup(script),
        data=Markup(in_script(as_read({"sections": [_data(section) for section in sections]}))),
    )
    return rendered.lstrip()


def in_script(content: Any) -> str:
    """JSON that may stand inside a script element: no tag can end or begin in it.

    Example:
        >>> print(in_script({"name": "</script>"}).replace(chr(92), "/"))  # with backslashes in truth
        {"name":"/u003c/script/u003e"}
    """
    text = json.dumps(content, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _data(section: Section) -> dict[str, Any]:
    """What the page's script needs of a section."""
    return {
        "methods": section.methods,
        "colours": [style(place).colour for place in range(len(section.methods))],
        "charts": [{"views": charts.views(figure)} for figure in section.charts],
        "cloud": section.cloud.content if section.cloud else None,
    }


def _hash(script: str) -> str:
    """By which a browser lets exactly this script run."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"

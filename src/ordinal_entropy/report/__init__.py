"""The report page: one HTML file of any folder of runs, that opens from disk; needs the [report] extra."""

import shlex
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from ordinal_entropy import runs
from ordinal_entropy.report import page as _page
from ordinal_entropy.report import sections as _sections
from ordinal_entropy.report.reading import CACHE, LeftOut, read

__all__ = ["FILE", "LeftOut", "missing", "write"]

FILE = "report.html"


def missing() -> str | None:
    """What a page lacks here, in words for after "needs"; None if it can be made.

    Example:
        >>> missing() is None or "ordinal-entropy[report]" in missing()
        True
    """
    lacking = [name for name in ("plotly", "jinja2") if find_spec(name) is None]
    return f"{' and '.join(lacking)}: pip install 'ordinal-entropy[report]'" if lacking else None


def write(folder: str | Path, progress: Callable[[int, int], None] | None = None) -> list[LeftOut]:
    """Writes ``report.html`` into a folder, atomically.

    Args:
        folder: of a study, a run, a diagnosis, or one that has such folders inside.
        progress: told how many layouts of features are done, and how many there are in a study.

    Returns:
        What the page leaves out, and why.

    Raises:
        ValueError: there is no such folder.
        ImportError: plotly or jinja2 is not installed.
    """
    place = Path(folder)
    command = f"ordinal-entropy report {shlex.quote(str(folder))}"
    if missing() is not None:
        raise ImportError(f"the page needs {missing()}, then {command}")
    found = read(place)
    cache = place / CACHE
    made = [
        found.attempted(study.path, lambda study=study: _sections.of_study(study, found, cache, progress))  # type: ignore[misc]
        for study in found.studies
    ]
    made += [
        found.attempted(group[0].path, lambda group=group: _sections.of_runs(group, found, cache, progress))  # type: ignore[misc]
        for group in _sections.group_by_task(found.runs)
    ]
    made += [
        found.attempted(name, lambda content=content: _sections.of_diagnosis(content))  # type: ignore[misc]
        for name, content in found.diagnoses.items()
    ]
    sections = [section for section in made if section is not None]
    title = sections[0].title if len(sections) == 1 else found.name(place)
    html = _page.page(sections, found.left_out, title=title, folder=str(place), command=command)
    with runs.replacing(place / FILE) as file:
        file.write(html.encode())
    return found.left_out

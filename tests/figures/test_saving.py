"""A picture on the disk: PNG and SVG, whole, and the same each time."""

import pytest

pytest.importorskip("matplotlib", reason="figures are matplotlib's")

from matplotlib.figure import Figure

from ordinal_entropy.figures.saving import save


def picture():
    figure = Figure()
    axes = figure.add_subplot()
    axes.plot([0, 1], [0, 1])
    axes.fill_between([0, 1], [0, 0], [1, 1], clip_on=True)
    axes.set_xlabel("distance (m)")
    axes.set_title("with $L_d$")
    return figure


def test_both_are_written_and_nothing_else(tmp_path):
    save(picture(), tmp_path / "new" / "one.png")
    assert sorted(file.name for file in (tmp_path / "new").iterdir()) == ["one.png", "one.svg"]
    assert (tmp_path / "new" / "one.png").read_bytes().startswith(b"\x89PNG")
    svg = (tmp_path / "new" / "one.svg").read_text()
    assert svg.startswith("<?xml") and svg.rstrip().endswith("</svg>")
    assert ">distance (m)</text>" in svg  # text, not outlines of letters


def test_the_same_picture_is_the_same_file(tmp_path):
    for name in ("one", "two"):
        save(picture(), tmp_path / f"{name}.png")
    for ending in ("png", "svg"):
        assert (tmp_path / f"one.{ending}").read_bytes() == (tmp_path / f"two.{ending}").read_bytes()


def test_settings_of_the_user_are_left_alone(tmp_path):
    from matplotlib import rcParams

    before = rcParams["svg.fonttype"], rcParams["svg.hashsalt"]
    save(picture(), tmp_path / "one.png")
    assert (rcParams["svg.fonttype"], rcParams["svg.hashsalt"]) == before


@pytest.mark.parametrize("failing", ["svg", "png"])
def test_a_stop_leaves_no_png(failing, tmp_path, monkeypatch):
    """A PNG that is there stands for both."""
    real = Figure.savefig

    def stopped(self, file, *, format, **options):
        if format == failing:
            file.write(b"half of")
            raise KeyboardInterrupt
        real(self, file, format=format, **options)

    monkeypatch.setattr(Figure, "savefig", stopped)
    with pytest.raises(KeyboardInterrupt):
        save(picture(), tmp_path / "one.png")
    assert [file.name for file in tmp_path.iterdir()] == (["one.svg"] if failing == "png" else [])


@pytest.mark.parametrize("name", ["one.pdf", "one", "one.svg"])
def test_another_ending_is_refused(name, tmp_path):
    with pytest.raises(ValueError, match=r"expected a path that ends in \.png, got .*one"):
        save(picture(), tmp_path / name)
    assert not list(tmp_path.iterdir())

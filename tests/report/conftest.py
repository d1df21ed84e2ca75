"""What the tests of the page share."""

import numpy as np
import pytest

pytest.importorskip("plotly", reason="the page's charts are plotly's")
pytest.importorskip("jinja2", reason="the page's template is jinja's")
pytest.importorskip("scipy", reason="the intervals are SciPy's")


@pytest.fixture
def quick_layout(monkeypatch):
    """The first directions in place of t-SNE; the list has the dimensions that were asked for."""
    from ordinal_entropy.figures import embedding

    asked = []

    def layout(features, *, dimensions, seed=0):
        asked.append(dimensions)
        found = {}
        for name, own in features.items():
            places = own[:, :dimensions].astype("float64") + 1e-3
            found[name] = places / np.linalg.norm(places, axis=1, keepdims=True) if dimensions == 3 else places
        return found

    monkeypatch.setattr(embedding, "layout", layout)
    return asked

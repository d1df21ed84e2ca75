"""Table 3, counting crowds.

    ordinal-entropy reproduce table3-crowd --set data=part_A --set pretrained=vgg16.safetensors
    ordinal-entropy reproduce table3-crowd --set part=B --set data=part_B --set pretrained=vgg16.safetensors
    ordinal-entropy reproduce table3-crowd --preset small --set data=part_A

The paper's numbers are single ones, without a spread, of images at full size.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ordinal_entropy.studies import paper
from ordinal_entropy.studies.grid import Variant, check_keys, published_rows, with_strengths
from ordinal_entropy.studies.paper import Score
from ordinal_entropy.studies.study import Study, draws_differences

_PUBLISHED_STRENGTH = 10.0
_TITLE = "Table 3, crowds"


@dataclass(frozen=True)
class Table3:
    """What is varied."""

    part: Literal["A", "B"] = "A"  # of ShanghaiTech: whose numbers stand beside ours; B has kernels of one width
    seeds: int = 3  # runs of each row
    methods: tuple[str, ...] = ("baseline", "ld", "oe")
    strengths: tuple[float, ...] = ()  # of the regularizers; none: 10, in small and quick 1; of several, a row each

    def __post_init__(self) -> None:
        """Checked before anything is trained."""
        check_keys(self)


def _fixed(keys: Table3) -> dict[str, Any]:
    """Kernels as published for each part; where those of B reach beyond the border, they are mirrored inwards."""
    kernel = {"kernel": "adaptive"} if keys.part == "A" else {"kernel": "fixed", "border": "kept"}
    return {**kernel, **({"strength": keys.strengths[0]} if keys.strengths else {})}


def _published(keys: Table3, variants: Sequence[Variant]) -> dict[str, dict[str, float]]:
    """Of the rows with the published strength, which is also that of the recipe."""
    usual = keys.strengths[0] if keys.strengths else _PUBLISHED_STRENGTH
    return published_rows(paper.TABLE3[keys.part], variants, _PUBLISHED_STRENGTH, usual)


STUDIES = {
    "table3-crowd": Study(
        about=f"{_TITLE}: the diversity, and with the tightness; --set data=ROOT, for part B --set part=B",
        keys=Table3(),
        task=lambda keys: "crowd",
        fixed=_fixed,
        strength=1.0,  # beside a mean over cells; 10 is for the published sum, whose presets have it
        variants=lambda keys: with_strengths(keys.methods, keys.strengths),
        paper=lambda keys, rows: {name: Score(own["mae"]) for name, own in _published(keys, rows).items()},
        paper_details=_published,
        notes=(
            "The paper's numbers are of full-size images, a front end with weights of ImageNet and a strength of 10; "
            "it gives no spread. Its baseline is that of CSRNet's own paper.",
        ),
        picture=draws_differences(_TITLE),
    )
}

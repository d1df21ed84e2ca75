"""Methods of deep regression: one contract, one registry of names, parts that are joined by ``+``.

To add a method: a file here with a subclass of :class:`Method`, and its name in the registry; outside of this package,
:func:`register` or an entry point in the group ``ordinal_entropy.methods``.
"""

from ordinal_entropy.methods import functional
from ordinal_entropy.methods.composition import (
    Composition,
    first_epochs,
    forward_step,
    require,
    stage_of,
    step_from,
    training_loss,
    what_is_needed,
)
from ordinal_entropy.methods.contract import KINDS, Batch, Method, Range, Step, TaskLoss, squared_error, weighted_mean
from ordinal_entropy.methods.registry import (
    compose,
    create,
    describe,
    kind,
    names,
    option_defaults,
    options,
    register,
    split,
    tunable,
    with_default,
)

__all__ = [
    "KINDS",
    "Batch",
    "Composition",
    "Method",
    "Range",
    "Step",
    "TaskLoss",
    "compose",
    "create",
    "describe",
    "first_epochs",
    "forward_step",
    "functional",
    "kind",
    "names",
    "option_defaults",
    "options",
    "register",
    "require",
    "split",
    "squared_error",
    "stage_of",
    "step_from",
    "training_loss",
    "tunable",
    "weighted_mean",
    "what_is_needed",
    "with_default",
]

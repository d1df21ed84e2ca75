"""The one registry of names: what is built in, what was registered, and what installed packages bring."""

import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import entry_points
from typing import Any, NamedTuple

from ordinal_entropy.balance import FRACTION, Balance
from ordinal_entropy.losses import OrdinalEntropy
from ordinal_entropy.methods.ada import ADA
from ordinal_entropy.methods.averaging import EMA, SWA
from ordinal_entropy.methods.balanced_mse import BalancedMSE, BalancedMSEGAI
from ordinal_entropy.methods.c_mixup import CMixup
from ordinal_entropy.methods.ce import CrossEntropy
from ordinal_entropy.methods.classification import Classification
from ordinal_entropy.methods.composition import Composition
from ordinal_entropy.methods.conr import ConR
from ordinal_entropy.methods.contract import BALANCE, KINDS, STRENGTH, Method, Range, overrides
from ordinal_entropy.methods.coral import CORAL
from ordinal_entropy.methods.corn import CORN
from ordinal_entropy.methods.dist_loss import DistLoss
from ordinal_entropy.methods.dldl import DLDL
from ordinal_entropy.methods.dldl_v2 import DLDLv2
from ordinal_entropy.methods.fds import FDS
from ordinal_entropy.methods.focal_r import FocalR
from ordinal_entropy.methods.gar import GAR
from ordinal_entropy.methods.hl_gauss import HLGauss
from ordinal_entropy.methods.huber import Huber
from ordinal_entropy.methods.koleo import KoLeo
from ordinal_entropy.methods.lds import LDS
from ordinal_entropy.methods.mean_variance import MeanVariance
from ordinal_entropy.methods.mixup import Mixup
from ordinal_entropy.methods.or_cnn import ORCNN
from ordinal_entropy.methods.ordinal_entropy import DESCRIPTIONS, FIXED, Regularizer, family
from ordinal_entropy.methods.ph_reg import PHReg
from ordinal_entropy.methods.power_losses import L1, L2
from ordinal_entropy.methods.quantile import Quantile
from ordinal_entropy.methods.rank_n_contrast import RankNContrast
from ordinal_entropy.methods.ranksim import RankSim
from ordinal_entropy.methods.rot_reg import ROTReg
from ordinal_entropy.methods.sord import SORD
from ordinal_entropy.methods.srl import SRL
from ordinal_entropy.methods.uniformity import Uniformity
from ordinal_entropy.methods.vicreg import VICReg

GROUP = "ordinal_entropy.methods"  # of entry points
_HOOKS = {  # that parts of some kinds alone are asked for
    "outputs": ("head", "loss"),
    "head": ("head", "loss"),
    "decode": ("head", "loss"),
    "task_loss": ("head", "loss"),
    "change": ("weights", "mixing"),
    "calibrate": ("smoothing",),
    "share": ("averaging",),
}
# options of every term, held by the composition
_STRENGTHS: dict[str, Any] = {"strength": None, "balance": FRACTION, "anneal": 0.0}


class _Entry(NamedTuple):
    make: Callable[..., Method]
    options: tuple[str, ...]  # of the constructor
    required: tuple[str, ...]
    description: str
    term: bool  # takes a strength or a balance
    tunable: Mapping[str, Range] = {}  # options that a tuned comparison searches


def _entry_of(name: str, make: Callable[..., Method]) -> _Entry:
    """Of a class, or of a function that makes a method."""
    parameters = inspect.signature(make).parameters.values()
    named = [each for each in parameters if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)]
    taken = [each.name for each in named if each.name in _STRENGTHS]
    if taken:
        raise ValueError(f"expected no option {taken[0]} of {name!r}: every term has one, which its method never sees")
    lines = (inspect.getdoc(make) or "").splitlines()
    return _Entry(
        make,
        tuple(each.name for each in named),
        tuple(each.name for each in named if each.default is each.empty),
        lines[0].rstrip(".") if lines else "",
        isinstance(make, type) and issubclass(make, Method) and make.term is not Method.term,
        tunable=getattr(make, "tunable", {}),
    )


def _family_entries() -> dict[str, _Entry]:
    """Of ordinal entropy and its ablations: the options of the regularizer that a name does not fix."""
    every = [name for name in inspect.signature(OrdinalEntropy).parameters if name not in _STRENGTHS]
    found = {}
    for name, about in DESCRIPTIONS.items():
        taken = tuple(option for option in every if option not in FIXED[name])
        own = {option: each for option, each in Regularizer.tunable.items() if option in taken}
        found[name] = _Entry(family(name), taken, (), about, term=True, tunable=own)
    return found


_REGISTRY: dict[str, _Entry] = {
    "baseline": _entry_of("baseline", Method)._replace(description="the task loss alone"),
    **_family_entries(),
    "classification": _entry_of("classification", Classification)._replace(
        description="cross-entropy on uniform bins of the target, in place of the task loss"
    ),
    **{
        name: _entry_of(name, method)
        for name, method in {
            "ce": CrossEntropy,
            "hl-gauss": HLGauss,
            "dldl": DLDL,
            "dldl-v2": DLDLv2,
            "sord": SORD,
            "mean-variance": MeanVariance,
            "or-cnn": ORCNN,
            "coral": CORAL,
            "corn": CORN,
            "quantile": Quantile,
            "l1": L1,
            "l2": L2,
            "huber": Huber,
            "balanced-mse": BalancedMSE,
            "balanced-mse-gai": BalancedMSEGAI,
            "focal-r": FocalR,
            "gar": GAR,
            "dist-loss": DistLoss,
            "lds": LDS,
            "c-mixup": CMixup,
            "mixup": Mixup,
            "ada": ADA,
            "fds": FDS,
            "rnc": RankNContrast,
            "ema": EMA,
            "swa": SWA,
            "conr": ConR,
            "ranksim": RankSim,
            "srl": SRL,
            "vicreg": VICReg,
            "koleo": KoLeo,
            "uniformity": Uniformity,
            "ph-reg": PHReg,
            "rot-reg": ROTReg,
        }.items()
    },
}


def register(name: str, make: Callable[..., Method]) -> None:
    """Adds a method of one's own, for this process; an installed package brings one by an entry point instead.

    Args:
        name: without ``+``, dots, commas and spaces; not one that there is.
        make: a subclass of :class:`Method`, whose constructor's arguments are the options; its docstring's first line
            describes it.

    Example:
        >>> class Shrink(Method):
        ...     '''Pulls the features towards zero.'''
        ...     kind = "term"
        ...     def term(self, step):
        ...         return step.features.square().mean()
        >>> register("shrink", Shrink)
        >>> create("shrink", strength=0.1).name, describe("shrink")
        ('shrink', 'Pulls the features towards zero')
    """
    if not isinstance(name, str) or not name or any(sign in name for sign in "+.,=/") or name.split() != [name]:
        raise ValueError(f"expected a name without '+', '.', ',', '=', '/' and spaces, got {name!r}")
    if name in _REGISTRY or name in _installed():
        raise ValueError(f"expected a new name for a method, got {name!r}, which is one already")
    if not (isinstance(make, type) and issubclass(make, Method)):
        raise TypeError(f"expected a subclass of ordinal_entropy.methods.Method for {name!r}, got {make!r}")
    _REGISTRY[name] = _entry_of(name, make)


def names() -> list[str]:
    """Every name that :func:`create` knows; such names are also joined by ``+``.

    Example:
        >>> names()[:3]
        ['baseline', 'ld-unweighted', 'ld']
    """
    return [*_REGISTRY, *(name for name in _installed() if name not in _REGISTRY)]


def describe(name: str) -> str:
    """What a method does, in one line; of several that are joined, one after the other.

    Example:
        >>> describe("baseline")
        'the task loss alone'
    """
    return "; ".join(_entry(part).description for part in split(name))


def kind(name: str) -> str:
    """What one part does, by its name: a key of :data:`KINDS`, or "baseline".

    Example:
        >>> kind("hl-gauss"), kind("oe"), kind("baseline")
        ('head', 'term', 'baseline')
    """
    return str(getattr(_entry(name).make, "kind", "term"))  # the family of ordinal entropy is made by functions


def options(name: str) -> tuple[str, ...]:
    """The options that :func:`create` takes for this name.

    Example:
        >>> options("baseline"), options("classification")
        ((), ('bins', 'low', 'high', 'decode'))
        >>> options("oe")[:4]
        ('strength', 'balance', 'anneal', 'diversity_weight')
    """
    entry = _entry(name)
    return (*(_STRENGTHS if entry.term else ()), *entry.options)


def option_defaults(name: str) -> dict[str, Any]:
    """The options of one part, each with its default; of those that must be given, None.

    Example:
        >>> option_defaults("classification")
        {'bins': 100, 'low': None, 'high': None, 'decode': 'center'}
        >>> option_defaults("ld")["strength"], option_defaults("ld")["balance"], option_defaults("ld")["rescale"]
        (None, 0.1, 'max')
    """
    entry = _entry(name)
    made = OrdinalEntropy if name in FIXED else entry.make
    found = {key: each.default for key, each in inspect.signature(made).parameters.items() if key in entry.options}
    every = {**_STRENGTHS, **{key: None if value is inspect.Parameter.empty else value for key, value in found.items()}}
    return {option: every[option] for option in options(name)}


def tunable(name: str, *, fixed: bool = False) -> dict[str, Range]:
    """The options that a tuned comparison searches, each with its range, of all parts of a name.

    Args:
        name: of a method.
        fixed: strengths are, so that these are searched, and no fraction of the task loss's gradient.

    Example:
        >>> list(tunable("lds+oe")), tunable("baseline")
        (['lds.bandwidth', 'lds.power', 'oe.balance', 'oe.tightness_weight'], {})
        >>> tunable("oe")["oe.balance"].high, tunable("oe", fixed=True)["oe.strength"].high
        (1.0, 100.0)
    """
    found: dict[str, Range] = {}
    for part in split(name):
        entry = _entry(part)
        held = {} if not entry.term else {"strength": STRENGTH} if fixed else {"balance": BALANCE}
        found |= {f"{part}.{option}": own.checked(option) for option, own in {**held, **entry.tunable}.items()}
    return found


def split(name: str) -> list[str]:
    """The parts of a name; an unknown one, or one that comes twice, is a ValueError.

    Example:
        >>> split("classification+oe")
        ['classification', 'oe']
    """
    parts = str(name).split("+")
    for part in parts:
        _entry(part)
    twice = [part for part in parts if parts.count(part) > 1]
    if twice:
        raise ValueError(f"expected each part once, got {twice[0]!r} twice in {name!r}")
    return parts


def create(name: str, options: Mapping[str, Mapping[str, Any]] | None = None, /, **single: Any) -> Composition:
    """The method of that name, or of several names joined by ``+``: a module for :func:`training_loss`.

    Every added term is gradient-balanced: its gradient at the features is kept at a tenth of the task loss's. Beside a
    part of two stages, of which the first has no task loss, it has a strength of 1.

    Args:
        name: of :func:`names`; for example "classification+oe".
        options: of each part by its name; :func:`options` lists them.
        single: options of a name that is one part. Of a term, ``strength`` is a fixed factor of all that it adds,
            ``balance`` another fraction of the task loss's gradient, and ``anneal`` the share of the training over
            which either falls to 0 at its end.

    Example:
        >>> import torch
        >>> method = create("ld", strength=0.5)
        >>> method(torch.eye(3), torch.tensor([0.0, 3.0, 3.0]))  # the diversity is 1.2247
        tensor(-0.6124)
        >>> create("ld").balances["ld"].fraction
        0.1
        >>> create("classification+oe", {"classification": {"bins": 50}, "oe": {"strength": 5.0}}).outputs(1)
        50
        >>> create("ltt")
        Traceback (most recent call last):
        ValueError: expected a method like 'lt', got 'ltt'; there are baseline, ld-unweighted, ld, ...
    """
    parts = split(name)
    by_part = {part: dict(own) for part, own in (options or {}).items()}
    if single and len(parts) > 1:
        raise ValueError(f"expected options by part, as {{{parts[0]!r}: {{...}}}}, got {', '.join(single)} of {name!r}")
    if single:
        by_part[name] = {**by_part.get(name, {}), **single}
    return with_default(name, by_part)


def with_default(
    name: str,
    options: Mapping[str, Mapping[str, Any]],
    *,
    strength: float | None = None,
    balance: float = FRACTION,
) -> Composition:
    """As :func:`create`, with a strength or a fraction for all terms that have none among their options.

    Args:
        name: as there.
        options: of each part.
        strength: fixed; None: gradient-balanced. An option ``strength`` of None says so of one term.
        balance: the fraction of these; not of terms beside a part of two stages, whose strength is 1 then.

    Example:
        >>> made = with_default("oe+ld+lt", {"ld": {"strength": None}, "lt": {"balance": 0.2}}, strength=5.0)
        >>> made.strengths["oe"], {name: own.fraction for name, own in made.balances.items()}
        (5.0, {'ld': 0.1, 'lt': 0.2})
    """
    parts = split(name)
    for part in options:
        if part not in parts:
            raise ValueError(_unknown("part", part, parts))
    given = {part: dict(options.get(part, {})) for part in parts}
    made = {part: _made(part, own) for part, own in given.items()}
    staged = next((part for part, own in made.items() if len(own.stages) > 1), None)
    strengths, balances, anneals, notes = {}, {}, {}, []
    for part in parts:
        if not _entry(part).term:
            continue
        own = given[part]
        if own.get("strength") is not None and own.get("balance") is not None:
            raise ValueError(f"expected a strength or a balance of {part!r}, got both")
        anneals[part] = own.get("anneal", _STRENGTHS["anneal"])
        fixed = own.get("strength", strength)
        if own.get("balance") is not None:
            balances[part] = _balance(own["balance"], made[part])
        elif fixed is not None:
            strengths[part] = fixed
        elif staged is None:
            balances[part] = _balance(balance, made[part])
        else:
            strengths[part] = 1.0
            notes.append(
                f"{part}: strength 1, which nothing balances: the first of the two stages of {staged!r} has no task "
                "loss"
            )
    return Composition(made, strengths, balances, anneals, notes)


def compose(method: "str | Method | OrdinalEntropy | Iterable[Method]") -> Composition:
    """A method as a training loop needs it: of a name, of a part or several parts, or of a regularizer.

    Example:
        >>> compose(OrdinalEntropy(1.0, 0.0)).name
        'oe'
    """
    if isinstance(method, Composition):
        return method
    if isinstance(method, str):
        return create(method)
    if isinstance(method, OrdinalEntropy):
        balances = {} if method.balance is None else {"oe": method.balance}
        return Composition({"oe": Regularizer(method)}, balances=balances)
    parts = [method] if isinstance(method, Method) else list(method) if isinstance(method, Iterable) else [method]
    found: dict[str, Method] = {}
    for part in parts:
        if not isinstance(part, Method):
            raise TypeError(
                f"expected a name, a method or an OrdinalEntropy, got {type(part).__name__}; a method is a subclass of "
                "ordinal_entropy.methods.Method"
            )
        name = type(part).__name__.lower()
        _require_asked(name, part)
        found[name if name not in found else f"{name}{len(found)}"] = part
    return Composition(found)


def _made(name: str, given: Mapping[str, Any]) -> Method:
    """A part of some options."""
    entry, taken = _entry(name), options(name)
    unknown = [option for option in given if option not in taken]
    if unknown:
        takes = f"one of {', '.join(taken)}" if taken else "none"
        raise ValueError(f"expected options of {name!r}: {takes}; got {', '.join(unknown)}")
    missing = [option for option in entry.required if option not in given]
    if missing:
        raise ValueError(f"expected {name!r} with {', '.join(entry.required)}, got none for {', '.join(missing)}")
    part = entry.make(**{option: value for option, value in given.items() if option in entry.options})
    if not isinstance(part, Method):
        raise TypeError(f"expected {name!r} to be a subclass of ordinal_entropy.methods.Method, got {part!r}")
    _require_asked(name, part)
    return part


def _balance(given: Any, part: Method) -> Balance:
    """Of a term, which may have been given one."""
    if isinstance(given, Balance):
        return given
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise TypeError(f"expected balance to be a number or a Balance, got {type(given).__name__}")
    return Balance(given, terms=len(part.term_weights()))


def _require_asked(name: str, part: Method) -> None:
    """A ValueError where a part has a hook that parts of its kind are never asked for."""
    for hook, kinds in _HOOKS.items():
        if part.kind in KINDS and part.kind not in kinds and overrides(part, hook):
            raise ValueError(
                f"expected {hook} in parts of the kind {' or '.join(kinds)} alone, which are asked for it, got it in "
                f"{name!r}, of the kind {part.kind!r}"
            )


def _installed() -> dict[str, Any]:
    """Entry points of installed packages, by name; none is loaded."""
    return {point.name: point for point in entry_points(group=GROUP)}


def _entry(name: str) -> _Entry:
    if name in _REGISTRY:
        return _REGISTRY[name]
    point = _installed().get(name)
    if point is None:
        raise ValueError(_unknown("method", name, names()))
    try:
        _REGISTRY[name] = _entry_of(name, point.load())
    except Exception as error:
        raise ValueError(f"expected a method {name!r} at {point.value}, got {type(error).__name__}: {error}") from error
    return _REGISTRY[name]


def _unknown(kind: str, name: str, known: Iterable[str]) -> str:
    known = list(known)
    begins = [each for each in known if str(name).lower().startswith(f"{each}-")]  # as "oe" of "oe-balanced"
    near = list(dict.fromkeys([*begins, *difflib.get_close_matches(str(name).lower(), known, n=3)]))[:3]
    like = f"a {kind} like {' or '.join(map(repr, near))}" if near else f"the name of a {kind}"
    return f"expected {like}, got {name!r}; there are {', '.join(known)}"

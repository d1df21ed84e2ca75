"""A method of one object, replaced on that object alone, and put back."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

_ABSENT = object()


class Override:
    """What stands in for ``owner.name`` until :meth:`close`; the class of the owner is not touched.

    Several may lie around each other, and may be closed in any order. A copy of the owner, pickled or not, has its own
    method as it was.

    Args:
        owner: any object with a ``__dict__``.
        name: of its method.
        around: called with the method as it was, then the arguments of the call.

    Example:
        >>> from types import SimpleNamespace
        >>> owner = SimpleNamespace(double=lambda x: 2 * x)
        >>> override = Override(owner, "double", lambda method, x: method(x) + 1)
        >>> owner.double(3)
        7
        >>> override.close()
        >>> owner.double(3)
        6
    """

    def __init__(self, owner: Any, name: str, around: Callable[..., Any]) -> None:
        self.inner: Callable[..., Any] = getattr(owner, name)
        functools.update_wrapper(self, self.inner, updated=())
        self.__wrapped__ = inspect.unwrap(self.inner)  # whose parameters others look at
        self._owner = owner
        self._name = name
        self._around = around
        self._before = vars(owner).get(name, _ABSENT)
        setattr(owner, name, self)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The call, with the method as it was inside."""
        return self._around(self.inner, *args, **kwargs)

    def close(self) -> None:
        """Puts the method back; a second call does nothing."""
        present = vars(self._owner).get(self._name)
        if present is self and self._before is _ABSENT:
            delattr(self._owner, self._name)
        elif present is self:
            setattr(self._owner, self._name, self._before)
        while isinstance(present, Override):  # another one lies around this one
            if present.inner is self:
                present.inner, present._before = self.inner, self._before
            present = present.inner

    def __reduce__(self) -> tuple[Any, ...]:
        return _same, (self.inner,)


def _same(method: Any) -> Any:
    return method

"""Triton's interpreter, for tests of the fused kernels without a GPU."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch


@pytest.fixture(scope="module")
def interpreter():
    """Kernels run as numpy, and ``torch.empty`` is full of NaN, while the tests of a file do.

    Triton reads TRITON_INTERPRET when a function is decorated, those of its own library included. Who imported it
    first in this process is unknown, so each decorated function is replaced by its interpreted one. The variable is
    read when a kernel is called, too.
    """
    triton = pytest.importorskip("triton", reason="the interpreter is Triton's")
    from triton.runtime.interpreter import InterpretedFunction

    from ordinal_entropy.kernels import few, fused, grouped, maps

    def forget():
        for module in (few, fused, grouped, maps):
            for programs in vars(module).values():
                if hasattr(programs, "cache_clear"):
                    programs.cache_clear()

    deterministic = torch.are_deterministic_algorithms_enabled()
    ours = [module for name, module in sys.modules.items() if name.startswith("ordinal_entropy.kernels.")]
    with pytest.MonkeyPatch.context() as patch, np.errstate(all="ignore"):  # a GPU divides by zero in silence
        patch.setenv("TRITON_INTERPRET", "1")
        for module in (triton.language, triton.language.core, triton.language.standard, *ours):
            for name, function in list(vars(module).items()):
                if isinstance(function, triton.JITFunction):
                    patch.setattr(module, name, InterpretedFunction(function.fn))
        # few programs of many rows and columns, as in a large problem: the interpreter goes through them one by one
        large = SimpleNamespace(cdiv=triton.cdiv, next_power_of_2=lambda n: max(64, triton.next_power_of_2(n)))
        patch.setattr(fused, "triton", large)
        torch.use_deterministic_algorithms(True)
        forget()
        yield
        forget()
        torch.use_deterministic_algorithms(deterministic)

"""A device named "pretend", to train on where there is no GPU: its tensors lie in the CPU's memory, but torch, and so
the trainer, takes them for another device's.

What would break on a GPU breaks here: an operation on tensors of both devices raises MixedDevicesError, and a tensor of
the device has no `.numpy()`. What it cannot tell is whether a GPU's own kernels give the right numbers.

Registering the device cannot be undone: use it in a process of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

NAME = "pretend"
CROSSING = ("aten::to", "aten::_to_copy")
BETWEEN = (*CROSSING, "aten::copy_", "aten::_local_scalar_dense")
"""Operations that may see both devices."""


class MixedDevicesError(RuntimeError):
    """An operation got tensors of both devices."""


class PretendTensor(torch.Tensor):
    """A tensor of the device; `inner` is the CPU's tensor that holds its numbers."""

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> PretendTensor:
        return torch.Tensor._make_wrapper_subclass(
            cls, inner.size(), strides=inner.stride(), storage_offset=inner.storage_offset(), dtype=inner.dtype,
            device=torch.device(NAME, 0),
        )  # fmt: skip

    def __init__(self, inner: torch.Tensor):
        self.inner = inner

    def untyped_storage(self) -> torch.UntypedStorage:
        return self.inner.untyped_storage()

    def tolist(self) -> list:
        return self.inner.tolist()

    @classmethod
    def __torch_dispatch__(cls, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(operation, args, kwargs or {})


class _Machine(TorchDispatchMode):
    """Sees what makes tensors on a device, beside what works on them."""

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(operation, args, kwargs or {})


class _Lists(TorchFunctionMode):
    """Tensors of lists of numbers: torch moves those to their device out of sight of any other mode."""

    def __torch_function__(self, function: Callable, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        device = None
        if function is torch.tensor:
            device = kwargs.pop("device", None)
        elif function is torch.Tensor.new_tensor:
            like, *args = args
            function, device, kwargs = torch.tensor, like.device, {"dtype": like.dtype, **kwargs}
        made = function(*args, **kwargs)
        return made if device is None else made.to(device)


@contextmanager
def machine() -> Iterator[None]:
    """Inside, this machine has the device."""
    _setup_privateuseone_for_python_backend(NAME)
    getattr(torch, NAME).get_amp_supported_dtype = lambda: [torch.bfloat16]
    with _Machine(), _Lists():
        yield


def _run(operation: Any, args: Any, kwargs: Any) -> Any:
    name = operation._schema.name
    tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    ours = [tensor for tensor in tensors if isinstance(tensor, PretendTensor)]
    others = [tensor for tensor in tensors if not isinstance(tensor, PretendTensor) and tensor.dim()]
    if ours and others and name not in BETWEEN:
        raise MixedDevicesError(f"{operation} got {tuple(others[0].shape)} on the CPU beside {tuple(ours[0].shape)}")
    done = operation(*tree_map(_inner, args), **tree_map(_inner, kwargs))
    asked = next((leaf.type for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.device)), None)
    if name in CROSSING:
        return _moved(args[0], done, asked or args[0].device.type)
    here = isinstance(args[0], PretendTensor) if name == "aten::copy_" else bool(ours)
    if name == "aten::_local_scalar_dense" or not (here if asked is None else asked == NAME):
        return done
    done = tree_map(lambda leaf: PretendTensor(leaf) if isinstance(leaf, torch.Tensor) else leaf, done)
    return return_and_correct_aliasing(operation, args, kwargs, done)


def _moved(source: torch.Tensor, done: torch.Tensor, target: str) -> torch.Tensor:
    """The result of a move to `target`, which shares no memory with its source if that is elsewhere."""
    if done.device.type != "meta" and done.data_ptr() == _inner(source).data_ptr():
        if source.device.type == target:
            return source
        done = done.clone()
    return PretendTensor(done) if target == NAME else done


def _inner(leaf: Any) -> Any:
    if isinstance(leaf, PretendTensor):
        return leaf.inner
    return torch.device("cpu") if isinstance(leaf, torch.device) and leaf.type == NAME else leaf

"""A pretended accelerator: a device of torch whose memory and arithmetic are the CPU's.

Its tensors refuse to be mixed with those of the CPU, so that a missing ``.to(device)`` fails as it would on a GPU. They
are the CPU's own numbers under another device's name, which DLPack writes; a fallback for all operations gives the
CPU's kernels the same numbers under the CPU's name. Views, autograd and optimizers are torch's own.

PyTorch's example device, torch_openreg, needs its source and a compiler; a mode that marks CPU tensors would not see
what autograd does in its own thread.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils.backend_registration import _DummyBackendModule, _setup_privateuseone_for_python_backend

NAME = "pretended"
CPU, PRETENDED = 1, 12
"""Kinds of devices in DLPack: kDLCPU and kDLExtDev."""
PRODUCTS = "matmul", "linear", "mm", "bmm", "addmm", "baddbmm"
"""Operations that autocast computes in bfloat16."""
MIXED = "aten::_copy_from", "aten::index", "aten::_index_put_impl_"
"""Operations that take tensors of the CPU: copies and indices."""
ALIKE = "aten::cat", "aten::stack"
"""Operations that do not take even numbers, tensors of dimension 0, of the CPU."""
aten = torch.ops.aten


class Module(_DummyBackendModule):
    """What `torch.cuda` is for CUDA."""

    available = False
    """Whether `torch.accelerator` sees the device; only the tests of this folder let it."""
    float64 = True
    """Whether it computes in float64."""
    allocated = 0
    """What it says of its memory."""

    def is_available(self) -> bool:
        return self.available

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16]

    def get_rng_state(self, device: Any) -> Tensor:
        return torch.get_rng_state()

    def set_rng_state(self, state: Tensor, device: Any) -> None:
        torch.set_rng_state(state)


class Generator(torch.Generator):
    """A generator with the CPU's numbers that says it is on the device; torch makes those of devices in C++ alone."""

    def __new__(cls, device: Any = "cpu") -> Any:
        generator = super().__new__(cls)
        generator.where = torch.device(device)
        return generator

    @property
    def device(self) -> torch.device:
        return self.where


class _DLDevice(ctypes.Structure):
    """The start of DLPack's DLTensor."""

    _fields_ = (("data", ctypes.c_void_p), ("kind", ctypes.c_int32))


_address = ctypes.pythonapi.PyCapsule_GetPointer
_address.restype, _address.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


def _named(tensor: Tensor, kind: int) -> Tensor:
    """Return the same numbers as a tensor of another kind of device."""
    capsule = torch._C._to_dlpack(tensor)
    _DLDevice.from_address(_address(capsule, b"dltensor")).kind = kind
    return torch._C._from_dlpack(capsule)


def _each(change: Callable[[Any], Any], values: Any) -> Any:
    """Apply a function to a value, or to every value of lists and tuples."""
    return [_each(change, one) for one in values] if isinstance(values, list | tuple) else change(values)


def _compute(operation: Any, *args: Any, **kwargs: Any) -> Any:
    """Compute an operation on the CPU, in the memory of its arguments."""
    schema = operation._schema
    lowered: list[tuple[Tensor, Tensor]] = []

    def lower(value: Any) -> Any:
        """Return an argument as the CPU's kernel takes it."""
        if isinstance(value, torch.device):
            return torch.device("cpu")
        if not isinstance(value, Tensor):
            return value
        if value.device.type != NAME:
            if schema.name not in MIXED and (value.ndim or schema.name in ALIKE):
                raise RuntimeError(f"{schema.name} got tensors of {NAME} and of the CPU, {tuple(value.shape)}")
            return value
        _check_type(value)
        # Memory that came through DLPack cannot grow, so an empty result is made anew.
        empty = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype) if not value.numel() else None
        lowered.append((value, _named(value, CPU) if empty is None else empty))
        return lowered[-1][1]

    def lift(value: Any) -> Any:
        """Return a result under the device's name; what was written in place is an argument."""
        if not isinstance(value, Tensor):
            return value
        for ours, theirs in lowered:
            if theirs is value:
                if ours.shape != value.shape:
                    ours.data = _named(value, PRETENDED)
                return ours
        _check_type(value)
        return _named(value, PRETENDED)

    positional, named = _each(lower, args), {name: _each(lower, value) for name, value in kwargs.items()}
    if operation is aten._copy_from.default:
        positional[1].copy_(positional[0])
        return args[1]
    if operation is aten.resize_.default:
        args[0].data = _named(torch.empty(args[1], dtype=args[0].dtype), PRETENDED)
        return args[0]
    if operation is aten._efficientzerotensor.default:  # it has no memory that another name could be given
        operation = aten.zeros.default
    for place, (value, argument) in enumerate(zip(positional, schema.arguments, strict=False)):
        if isinstance(value, int | float) and str(argument.type) == "Tensor":
            # Torch hands over a number in place of its tensor.
            positional[place] = torch.tensor(value, dtype=torch.result_type(lowered[0][1], value))
    return _each(lift, operation(*positional, **named))


def _check_type(tensor: Tensor) -> None:
    if not MODULE.float64 and tensor.dtype in (torch.float64, torch.complex128):
        raise TypeError(f"{NAME} has no {tensor.dtype}")


def _lstm_cell(inputs: Tensor, hidden: Tensor, before: Tensor, *biases: Tensor | None) -> tuple[Tensor, ...]:
    """Compute one step of an LSTM, which devices other than the CPU compute in one kernel of their own."""
    i, f, g, o = sum((bias for bias in biases if bias is not None), inputs + hidden).chunk(4, 1)
    cell = f.sigmoid() * before + i.sigmoid() * g.tanh()
    return o.sigmoid() * cell.tanh(), cell, cell


def _in_bfloat16(operation: Any) -> Any:
    def kernel(*args: Tensor | None, **factors: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastPrivateUse1)):
            dtype = torch.get_autocast_dtype(NAME)
            given = [one.to(dtype) if one is not None and one.dtype == torch.float32 else one for one in args]
            return operation(*given, **factors)

    return kernel


MODULE = Module()
_setup_privateuseone_for_python_backend(NAME, backend_module=MODULE)
_ALL, _ATEN = torch.library.Library("_", "IMPL"), torch.library.Library("aten", "IMPL")
_ALL.fallback(_compute, "PrivateUse1")
_ALL.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
for key in ("AutogradPrivateUse1", "PrivateUse1"):
    _ATEN.impl("_thnn_fused_lstm_cell", _lstm_cell, key)
for name in PRODUCTS:
    _ATEN.impl(name, _in_bfloat16(getattr(aten, name)), "AutocastPrivateUse1")

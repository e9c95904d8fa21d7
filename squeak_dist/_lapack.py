"""LAPACK and BLAS by the addresses that SciPy exports for Cython.

SciPy's Python wrappers hold the GIL, for minutes where m is large, and a worker must answer
its scheduler meanwhile; these calls do not. They work in place and copy nothing.
"""

from __future__ import annotations

import ctypes
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np
from scipy.linalg import cython_blas, cython_lapack

_Argument = str | int | float | np.ndarray[Any, Any]


def blas(name: str, *args: _Argument) -> None:
    """Call a routine of BLAS.

    Parameters
    ----------
    name : str
        Such as ``"dtrsm"``.
    *args : str, int, float or ndarray
        All that Fortran takes, in its order; an array must be in the order that it expects.
    """
    _call(cython_blas, name, args)


def lapack(name: str, *args: _Argument) -> int:
    """Call a routine of LAPACK; return its ``info``, which is 0 of success.

    Parameters
    ----------
    name : str
        Such as ``"dpotrf"``.
    *args : str, int, float or ndarray
        All that Fortran takes but ``info``, as in :func:`blas`.
    """
    info = np.zeros(1, np.intc)
    _call(cython_lapack, name, (*args, info))
    return int(info[0])


def _call(library: ModuleType, name: str, args: tuple[_Argument, ...]) -> None:
    _routine(library, name, len(args))(*map(_by_address, args))


def _by_address(arg: _Argument) -> Any:
    """Return what ctypes hands on as the address of an argument: Fortran takes all so."""
    if isinstance(arg, np.ndarray):
        return arg.__array_interface__["data"][0]
    if isinstance(arg, int):
        return ctypes.byref(ctypes.c_int(arg))
    return arg.encode() if isinstance(arg, str) else ctypes.byref(ctypes.c_double(arg))


@cache
def _routine(library: ModuleType, name: str, n_args: int) -> Any:
    capsule = vars(library)["__pyx_capi__"][name]
    name_of = ctypes.pythonapi.PyCapsule_GetName
    pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
    name_of.restype, name_of.argtypes = ctypes.c_char_p, [ctypes.py_object]
    pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    address = pointer_of(capsule, name_of(capsule))
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * n_args)(address)

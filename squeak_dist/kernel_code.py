"""Machine code for kernel entries and their products, written when it is first called.

By NumPy a block of k(X, Y) is a matrix product and three to eight passes of its result through
the cache. Here it is one pass: a tile of entries stays in registers from the first feature to
the exponential. LLVM writes the code for the processor it runs on, so that nothing has to be
compiled where the package is installed: 0.05 s a function, and 0.01 s in later processes, which
find it in the user's cache.

An entry is the same chain of correctly rounded operations wherever it stands: its bits depend on
neither the rows beside it nor the width of the registers.
"""

from __future__ import annotations

import ctypes
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from threading import Lock
from typing import Any, Literal

import llvmlite
import numpy as np
from llvmlite import binding, ir

from squeak_dist._cache import cached
from squeak_dist._typing import Float64Array, FloatArray

Radial = Literal["rbf", "matern 1/2", "matern 3/2", "matern 5/2", "laplacian"]

FLOAT32, FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)
_MANTISSA_BITS = {FLOAT32: 23, FLOAT64: 52}

# 2^f = 1 + f q(f) for |f| ≤ 1/2: the coefficients of q whose relative error is least (Remez),
# 2.6e-9 and 1.8e-17.
_POWER_OF_TWO = {
    FLOAT32: (
        0.6931472149680278995, 0.2402265278288773743, 0.055503105510137971734,
        0.0096176929729930623181, 0.0013406643902351759246, 0.00015594678161326619324,
    ),
    FLOAT64: (
        0.69314718055994569675, 0.24022650695910098007, 0.055504108664790394552,
        0.0096181291076070023796, 0.0013333558153439964747, 0.0001540353044157213033,
        0.000015252727385193868197, 1.3215442675329822143e-6, 1.0180647659234138888e-7,
        7.0725704128144235096e-9, 4.078071929588336665e-10,
    ),
}  # fmt: skip

# −log of the least entry. Smaller ones mean nothing beside 1, and their products would be
# denormal, which a processor handles many times slower.
_FARTHEST = {FLOAT32: 39.0, FLOAT64: 700.0}
_LOG2_E = math.log2(math.e)
_VECTORS = 3  # of entries, beside each other in a tile
_PARTS = 16  # of a sum in float64, on any processor: their order is the same

_DONT_NEED = 4  # MADV_DONTNEED of Linux

_INT32, _WORD, _VOID = ir.IntType(32), ir.IntType(64), ir.VoidType()
_WRITING = Lock()


@dataclass(frozen=True)
class Processor:
    """What LLVM writes code for.

    Parameters
    ----------
    name, features : str
        As LLVM calls them.
    lanes : int
        Float32 numbers in a register.
    rows : int
        Of a tile: three vectors of each, and what they are made of, stay in registers.
    fused : bool
        Whether it has a multiply-add with one rounding.
    """

    name: str
    features: str
    lanes: int
    rows: int
    fused: bool


@dataclass(frozen=True)
class EntryCode:
    """A function that fills blocks with entries of one kernel, in one precision.

    Parameters
    ----------
    dtype : dtype
        float32 or float64, of rows and entries.
    width : int
        Columns of a panel, see :meth:`packed`.
    function : callable
        Of addresses and sizes; it runs without the GIL.
    """

    dtype: np.dtype[Any]
    width: int
    function: Callable[..., None]

    def packed(self, Y: FloatArray) -> FloatArray:
        """Return Y of shape (m, k) as panels of shape (⌈m / width⌉, k, width), padded by 0."""
        m, k = Y.shape
        panels = -(-m // self.width)
        padded = np.zeros((panels * self.width, k), self.dtype)
        padded[:m] = Y
        return np.ascontiguousarray(padded.reshape(panels, self.width, k).transpose(0, 2, 1))

    def fill(self, X: FloatArray, packed: FloatArray, out: FloatArray) -> None:
        """Write an entry for each row of X (n, k) and each row that was packed to out (n, m)."""
        (n, m), k = out.shape, X.shape[1]
        rows = np.ascontiguousarray(X, self.dtype)
        block = out if out.strides[1] == out.itemsize or m < 2 else np.empty((n, m), self.dtype)
        stride = block.strides[0] // block.itemsize
        self.function(rows.ctypes.data, packed.ctypes.data, block.ctypes.data, n, m, k, stride)
        if block is not out:
            out[...] = block


@cache
def entry_code(radial: Radial, dtype: np.dtype[Any]) -> EntryCode:
    """Return the code for a kernel on this processor, written at the first call.

    Parameters
    ----------
    radial : {"rbf", "matern 1/2", "matern 3/2", "matern 5/2", "laplacian"}
        What is made of a row x of X and a row y of what is packed. With z = x · y it is
        exp(z) for "rbf", and the Matérn kernel at a = sqrt(z), see
        :class:`~squeak_dist.kernels.Matern`; for "laplacian", exp(−Σ_j abs(x_j − y_j)).
    dtype : dtype
        float32 or float64.
    """
    return code_for(radial, dtype, this_processor())


def code_for(radial: Radial, dtype: np.dtype[Any], processor: Processor) -> EntryCode:
    """Return the code for a kernel on a processor that this one can stand in for.

    Parameters
    ----------
    radial, dtype
        As in :func:`entry_code`.
    processor : Processor
        This one, or one with narrower registers.
    """
    numbers = _Numbers(
        dtype, processor.lanes * FLOAT32.itemsize // dtype.itemsize, processor.fused
    )
    function = _compiled(lambda: _filling(radial, numbers, processor.rows), processor, sizes=4)
    return EntryCode(dtype, numbers.width, function)


def wide_product(K: FloatArray, C: Float64Array) -> Float64Array:
    """Return K C, summed in float64.

    Parameters
    ----------
    K : ndarray of float32, shape (n, m)
        Its rows are contiguous.
    C : ndarray of float64, shape (m, k)
        Of any strides.

    Returns
    -------
    ndarray of float64, shape (n, k)
        Cost: a pass over K for each column.
    """
    multiply, (n, m), stride = _multiplication(this_processor()), K.shape, K.strides[0]
    product = np.empty((C.shape[1], n))
    for column, sums in zip(np.ascontiguousarray(C.T), product, strict=True):
        multiply(K.ctypes.data, column.ctypes.data, sums.ctypes.data, n, m, stride // K.itemsize)
    return product.T


@cache
def _multiplication(processor: Processor) -> Callable[..., None]:
    return _compiled(lambda: _multiplying(processor), processor, sizes=3)


@cache
def this_processor() -> Processor:
    """Return what LLVM knows of the processor."""
    name, known = binding.get_host_cpu_name(), dict(binding.get_host_cpu_features())
    features = ",".join(f"{'+' if has else '-'}{feature}" for feature, has in known.items())
    if binding.get_default_triple().startswith(("aarch64", "arm64")):
        return Processor(name, features, lanes=4, rows=8, fused=True)
    if known.get("avx512f"):
        return Processor(name, features, lanes=16, rows=8, fused=True)
    if known.get("avx2") and known.get("fma"):
        return Processor(name, features, lanes=8, rows=4, fused=True)
    return Processor(name, features, lanes=4, rows=4, fused=False)


def _compiled(
    write: Callable[[], ir.Module], processor: Processor, *, sizes: int
) -> Callable[..., None]:
    """Return the function "main" of a module, of three addresses and some sizes."""
    with _WRITING:
        binding.initialize_native_target()
        binding.initialize_native_asmprinter()
        target = binding.Target.from_default_triple().create_target_machine(
            cpu=processor.name, features=processor.features, opt=2
        )
        source = str(write())
        key = "\n".join(
            (llvmlite.__version__, target.triple, processor.name, processor.features, source)
        )
        code = cached(key, lambda: _machine_code(source, target))
        engine = binding.create_mcjit_compiler(binding.parse_assembly(""), target)
        engine.add_object_file(binding.object_file.ObjectFileRef.from_data(code))
        engine.finalize_object()
        address = engine.get_function_address("main")
    _drop_pages_of_llvm()
    signature = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3, *[ctypes.c_int64] * sizes)
    function: Any = signature(address)
    function.engine = engine  # the code lives as long as it does
    return function


def _machine_code(source: str, target: Any) -> bytes:
    """Return the object file of a module: some 6 kB that LLVM takes 40 ms for."""
    module = binding.parse_assembly(source)
    passes = binding.create_new_module_pass_manager()
    passes.add_always_inliner_pass()
    options = binding.create_pipeline_tuning_options()
    passes.run(module, binding.create_pass_builder(target, options))
    return bytes(target.emit_object(module))


def _drop_pages_of_llvm() -> None:
    """Let the pages of LLVM's own code go; Linux reads them from its file if it runs again.

    They are 50 to 80 MiB, which a Dask worker would count as memory of its tasks.
    """
    if not sys.platform.startswith("linux"):
        return
    libc = ctypes.CDLL(None)
    with open("/proc/self/maps", encoding="utf-8") as maps:
        for line in maps:
            span, access, *_ = line.split()
            if "libllvmlite" in line and access == "r-xp":  # never written to, so nothing is lost
                start, end = (int(address, 16) for address in span.split("-"))
                libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), _DONT_NEED)


# --- the code of a block ----------------------------------------------------------------------


@dataclass(frozen=True)
class _Numbers:
    """What the code counts in: numbers of a type, so many in a vector."""

    dtype: np.dtype[Any]
    lanes: int
    fused: bool

    @property
    def width(self) -> int:
        """Columns of a tile."""
        return _VECTORS * self.lanes

    @property
    def number(self) -> Any:
        return ir.FloatType() if self.dtype == FLOAT32 else ir.DoubleType()

    @property
    def vector(self) -> Any:
        return ir.VectorType(self.number, self.lanes)

    @property
    def integers(self) -> Any:
        return ir.VectorType(ir.IntType(8 * self.dtype.itemsize), self.lanes)


def _filling(radial: Radial, numbers: _Numbers, rows: int) -> ir.Module:
    """Return a module whose main(X, packed, out, n, m, k, stride) fills a block.

    For each panel of columns, which stays in the first cache, tiles of rows and then the rows
    that are left. Columns beyond m are written beside the block and left there.
    """
    module = ir.Module(radial)
    finish = _finish(module, radial, numbers)
    tiles = {count: _tile(module, radial, numbers, count, finish) for count in (rows, 1)}
    arguments = [numbers.number.as_pointer()] * 3 + [_WORD] * 4
    main = ir.Function(module, ir.FunctionType(_VOID, arguments), "main")
    X, packed, out, n, m, k, stride = main.args
    code = ir.IRBuilder(main.append_basic_block())
    width = _WORD(numbers.width)
    beside = code.alloca(numbers.number, numbers.width * rows)
    in_tiles = code.sub(n, code.srem(n, _WORD(rows)))
    with _counting(code, _WORD(0), m, width) as column:
        panel = code.gep(packed, [code.mul(column, k)])
        inside = code.sub(m, column)
        whole = code.icmp_signed(">=", inside, width)
        for first, last, count in ((_WORD(0), in_tiles, rows), (in_tiles, n, 1)):
            with _counting(code, first, last, _WORD(count)) as row:
                left = code.gep(X, [code.mul(row, k)])
                corner = code.gep(out, [code.add(code.mul(row, stride), column)])
                with code.if_else(whole) as (full, partial):
                    with full:
                        code.call(tiles[count], [left, panel, corner, k, stride])
                    with partial:
                        code.call(tiles[count], [left, panel, beside, k, width])
                        _copy(code, beside, width, corner, stride, _WORD(count), inside)
    code.ret_void()
    return module


def _copy(
    code: ir.IRBuilder, source: Any, width: Any, out: Any, stride: Any, rows: Any, columns: Any
) -> None:
    """Copy some columns of a tile."""
    with (
        _counting(code, _WORD(0), rows, _WORD(1)) as row,
        _counting(code, _WORD(0), columns, _WORD(1)) as column,
    ):
        value = code.load(code.gep(source, [code.add(code.mul(row, width), column)]))
        code.store(value, code.gep(out, [code.add(code.mul(row, stride), column)]))


def _tile(
    module: ir.Module, radial: Radial, numbers: _Numbers, rows: int, finish: ir.Function
) -> ir.Function:
    """Return tile(X, panel, out, k, stride): some rows of X beside a panel, entry by entry."""
    arguments = [numbers.number.as_pointer()] * 3 + [_WORD] * 2
    tile = ir.Function(module, ir.FunctionType(_VOID, arguments), f"tile_of_{rows}")
    tile.linkage = "internal"
    X, panel, out, k, stride = tile.args
    code = ir.IRBuilder(tile.append_basic_block())
    vector = _Vector(module, code, numbers)
    accumulate, _ = _RADIAL[radial]
    places = [(row, j) for row in range(rows) for j in range(_VECTORS)]
    starts = [_WORD(j * numbers.lanes) for j in range(_VECTORS)]
    zeros = vector.zeros(len(places))
    with _summing(code, _WORD(0), k, _WORD(1), zeros) as (feature, sums, grown):
        beside = code.gep(panel, [code.mul(feature, _WORD(numbers.width))])
        right = [vector.load(code.gep(beside, [start])) for start in starts]
        numbers_left = (
            code.load(code.gep(X, [code.add(code.mul(k, _WORD(row)), feature)]))
            for row in range(rows)
        )
        left = [vector.spread(number) for number in numbers_left]
        for (row, j), total in zip(places, sums, strict=True):
            grown.append(accumulate(vector, total, left[row], right[j]))
    for (row, j), total in zip(places, sums, strict=True):
        place = code.gep(out, [code.add(code.mul(stride, _WORD(row)), starts[j])])
        vector.store(code.call(finish, [total]), place)
    code.ret_void()
    return tile


def _finish(module: ir.Module, radial: Radial, numbers: _Numbers) -> ir.Function:
    """Return the function that makes entries of sums, which LLVM puts where it is called."""
    function = ir.Function(module, ir.FunctionType(numbers.vector, [numbers.vector]), "finish")
    function.linkage = "internal"
    function.attributes.add("alwaysinline")
    code = ir.IRBuilder(function.append_basic_block())
    _, finish = _RADIAL[radial]
    code.ret(finish(_Vector(module, code, numbers), function.args[0]))
    return function


@contextmanager
def _summing(
    code: ir.IRBuilder, first: Any, last: Any, step: Any, start: Sequence[Any]
) -> Iterator[tuple[Any, list[Any], list[Any]]]:
    """Write a loop that carries values: yield its number, these, and a list for their successors.

    After it the values are what they became.
    """
    before = code.block
    with _counting(code, first, last, step) as count:
        head = count.parent
        with code.goto_block(head):
            code.position_at_start(head)
            values = [code.phi(value.type) for value in start]
        grown: list[Any] = []
        yield count, values, grown
        for value, initial, successor in zip(values, start, grown, strict=True):
            value.add_incoming(initial, before)
            value.add_incoming(successor, code.block)


@contextmanager
def _counting(code: ir.IRBuilder, first: Any, last: Any, step: Any) -> Iterator[Any]:
    """Write what is inside for each number from first, in steps, to below last."""
    before = code.block
    head, body, after = (code.append_basic_block() for _ in range(3))
    code.branch(head)
    code.position_at_end(head)
    count = code.phi(_WORD)
    count.add_incoming(first, before)
    code.cbranch(code.icmp_signed("<", count, last), body, after)
    code.position_at_end(body)
    yield count
    count.add_incoming(code.add(count, step), code.block)
    code.branch(head)
    code.position_at_end(after)


def _multiplying(processor: Processor) -> ir.Module:
    """Return a module whose main(K, c, out, n, m, stride) writes K c, of float32 and float64.

    A row's sum has parts of every sixteenth term, then what is left, in this order.
    """
    module = ir.Module("product")
    numbers = _Numbers(FLOAT64, _PARTS, processor.fused)
    single, double = ir.FloatType(), numbers.number
    arguments = [kind.as_pointer() for kind in (single, double, double)] + [_WORD] * 3
    main = ir.Function(module, ir.FunctionType(_VOID, arguments), "main")
    K, c, out, n, m, stride = main.args
    code = ir.IRBuilder(main.append_basic_block())
    vector = _Vector(module, code, numbers)
    entries = ir.VectorType(single, _PARTS)
    reduce = ir.Function(
        module,
        ir.FunctionType(double, [double, numbers.vector]),
        f"llvm.vector.reduce.fadd.v{_PARTS}f64",
    )
    together = 4 if processor.lanes >= _PARTS else 2  # rows whose parts stay in registers
    in_groups, in_parts = (
        code.sub(size, code.srem(size, _WORD(count)))
        for size, count in ((n, together), (m, _PARTS))
    )
    for first, last, count in ((_WORD(0), in_groups, together), (in_groups, n, 1)):
        with _counting(code, first, last, _WORD(count)) as row:
            lines = [
                code.gep(K, [code.mul(code.add(row, _WORD(i)), stride)]) for i in range(count)
            ]
            with _summing(code, _WORD(0), in_parts, _WORD(_PARTS), vector.zeros(count)) as (
                column,
                parts,
                grown,
            ):
                factor = vector.load(code.gep(c, [column]))
                for line, part in zip(lines, parts, strict=True):
                    place = code.bitcast(code.gep(line, [column]), entries.as_pointer())
                    entry = code.fpext(code.load(place, align=4), numbers.vector)
                    grown.append(vector.multiply_add(entry, factor, part))
            zero = ir.Constant(double, 0.0)
            sums = [code.call(reduce, [zero, part]) for part in parts]
            with _summing(code, in_parts, m, _WORD(1), sums) as (column, totals, grown):
                factor = code.load(code.gep(c, [column]))
                for line, total in zip(lines, totals, strict=True):
                    entry = code.fpext(code.load(code.gep(line, [column])), double)
                    grown.append(code.fadd(total, code.fmul(entry, factor)))
            for i, total in enumerate(totals):
                code.store(total, code.gep(out, [code.add(row, _WORD(i))]))
    code.ret_void()
    return module


# --- the code of an entry ---------------------------------------------------------------------


@dataclass(frozen=True)
class _Vector:
    """Operations on vectors of numbers."""

    module: ir.Module
    code: ir.IRBuilder
    numbers: _Numbers

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.numbers.dtype

    def constant(self, value: float) -> Any:
        number = float(self.dtype.type(value))
        return ir.Constant(self.numbers.vector, [number] * self.numbers.lanes)

    def zeros(self, count: int) -> list[Any]:
        """Return so many zeros."""
        return [self.constant(0.0)] * count

    def load(self, place: Any) -> Any:
        pointer = self.code.bitcast(place, self.numbers.vector.as_pointer())
        return self.code.load(pointer, align=self.dtype.itemsize)

    def store(self, value: Any, place: Any) -> None:
        pointer = self.code.bitcast(place, self.numbers.vector.as_pointer())
        self.code.store(value, pointer, align=self.dtype.itemsize)

    def spread(self, number: Any) -> Any:
        """Return the number in every lane."""
        nothing, lanes = ir.Constant(self.numbers.vector, ir.Undefined), self.numbers.lanes
        first = self.code.insert_element(nothing, number, _INT32(0))
        everywhere = ir.Constant(ir.VectorType(_INT32, lanes), [0] * lanes)
        return self.code.shuffle_vector(first, nothing, everywhere)

    def multiply_add(self, a: Any, b: Any, c: Any) -> Any:
        """Return a b + c."""
        if self.numbers.fused:
            return self._intrinsic("fma", a, b, c)
        return self.code.fadd(self.code.fmul(a, b), c)

    def sqrt(self, x: Any) -> Any:
        return self._intrinsic("sqrt", x)

    def abs(self, x: Any) -> Any:
        return self._intrinsic("fabs", x)

    def polynomial(self, x: Any, *coefficients: float) -> Any:
        """Return Σ_i coefficients[i] x^i by Horner's rule."""
        value = self.constant(coefficients[-1])
        for coefficient in reversed(coefficients[:-1]):
            value = self.multiply_add(value, x, self.constant(coefficient))
        return value

    def clipped(self, x: Any, least: float, most: float) -> Any:
        """Return x within bounds; what is no number stays none."""
        for sign, bound in ((">", self.constant(least)), ("<", self.constant(most))):
            x = self.code.select(self.code.fcmp_ordered(sign, bound, x), bound, x)
        return x

    def power_of_two(self, x: Any) -> Any:
        """Return 2^x, where that is a normal number.

        Rounding turns x + 1.5 · 2^mantissa into the integer nearest to x, in its last bits.
        """
        code, bits = self.code, _MANTISSA_BITS[self.dtype]
        lanes, integers = self.numbers.lanes, self.numbers.integers
        large = self.constant(1.5 * 2.0**bits)
        moved = code.fadd(x, large)
        fraction = code.fsub(x, code.fsub(moved, large))
        power = code.bitcast(self.polynomial(fraction, 1.0, *_POWER_OF_TWO[self.dtype]), integers)
        shift = ir.Constant(integers, [bits] * lanes)
        exponent = code.shl(code.bitcast(moved, integers), shift)
        return code.bitcast(code.add(power, exponent), self.numbers.vector)

    def _intrinsic(self, name: str, *operands: Any) -> Any:
        vector = self.numbers.vector
        name = f"llvm.{name}.v{self.numbers.lanes}f{8 * self.dtype.itemsize}"
        function = self.module.globals.get(name) or ir.Function(
            self.module, ir.FunctionType(vector, [vector] * len(operands)), name
        )
        return self.code.call(function, operands)


def _product(vector: _Vector, total: Any, x: Any, y: Any) -> Any:
    return vector.multiply_add(x, y, total)


def _gap(vector: _Vector, total: Any, x: Any, y: Any) -> Any:
    return vector.code.fsub(total, vector.abs(vector.code.fsub(x, y)))


def _exponential(vector: _Vector, z: Any) -> Any:
    """Return exp(z) for z ≤ 0, where rounding may have turned z positive."""
    z = vector.clipped(z, -_FARTHEST[vector.dtype], 0.0)
    return vector.power_of_two(vector.code.fmul(z, vector.constant(_LOG2_E)))


def _matern(beyond: float, *polynomial: float) -> Callable[[_Vector, Any], Any]:
    """Return the function of z = a² that is a polynomial of a times exp(−a).

    ``beyond``: that much farther than elsewhere the polynomial has grown to.
    """

    def finish(vector: _Vector, z: Any) -> Any:
        farthest = _FARTHEST[vector.dtype] + beyond
        a = vector.sqrt(vector.clipped(z, 0.0, farthest**2))
        power = vector.power_of_two(vector.code.fmul(a, vector.constant(-_LOG2_E)))
        return vector.code.fmul(vector.polynomial(a, *polynomial), power)

    return finish


_RADIAL: dict[str, tuple[Callable[..., Any], Callable[[_Vector, Any], Any]]] = {
    "rbf": (_product, _exponential),
    "matern 1/2": (_product, _matern(0.0, 1.0)),
    "matern 3/2": (_product, _matern(4.0, 1.0, 1.0)),
    "matern 5/2": (_product, _matern(7.0, 1.0, 1.0, 1.0 / 3.0)),
    "laplacian": (_gap, _exponential),
}

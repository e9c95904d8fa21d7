from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.gaussian_process import kernels as gp
from sklearn.metrics import pairwise

from squeak_dist import kernels as module
from squeak_dist.errors import InvalidKernelError, InvalidParameterError, SqueakError
from squeak_dist.kernels import (
    BUILTIN_KERNELS,
    RBF,
    Cosine,
    Kernel,
    Laplacian,
    Linear,
    Matern,
    Polynomial,
    brief_kernel,
    check_kernel,
    kernel_block,
    kernel_config,
    kernel_diag,
    kernel_from_config,
    kernel_strips,
    make_kernel,
)
from squeak_dist.nystrom import projected_map, regularized_map
from squeak_dist.solvers import normal_equations, solve_direct
from squeak_dist.squeak import SqueakParameters, finish, squeak

SCALES = (0.5, 1.0, 2.0, 0.8)

# Our kernel, and the same by scikit-learn.
REFERENCES = {
    "rbf": (RBF(1.7), lambda X, Y: pairwise.rbf_kernel(X, Y, gamma=1 / (2 * 1.7**2))),
    "rbf-per-feature": (RBF(SCALES), lambda X, Y: gp.RBF(SCALES)(X, Y)),
    "matern-0.5": (Matern(1.7, 0.5), lambda X, Y: gp.Matern(1.7, nu=0.5)(X, Y)),
    "matern-1.5": (Matern(1.7, 1.5), lambda X, Y: gp.Matern(1.7, nu=1.5)(X, Y)),
    "matern-2.5": (Matern(1.7, 2.5), lambda X, Y: gp.Matern(1.7, nu=2.5)(X, Y)),
    "matern-per-feature": (Matern(SCALES, 2.5), lambda X, Y: gp.Matern(SCALES, nu=2.5)(X, Y)),
    "laplacian": (Laplacian(1.7), lambda X, Y: pairwise.laplacian_kernel(X, Y, gamma=1 / 1.7)),
    "linear": (Linear(), pairwise.linear_kernel),
    "polynomial": (
        Polynomial(1.7, degree=3, coef0=0.5),
        lambda X, Y: pairwise.polynomial_kernel(X, Y, degree=3, gamma=1 / 1.7**2, coef0=0.5),
    ),
    "cosine": (Cosine(), pairwise.cosine_similarity),
}
ALL_KERNELS = {name: kernel for name, (kernel, _) in REFERENCES.items()}
each_kernel = pytest.mark.parametrize("kernel", ALL_KERNELS.values(), ids=ALL_KERNELS)


def rows(n, d=4, seed=0, dtype=np.float64):
    return np.random.default_rng([seed, n, d]).normal(size=(n, d)).astype(dtype)


# --- values ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", REFERENCES)
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-12), (np.float32, 5e-6)])
def test_values_are_those_of_scikit_learn(name, dtype, tolerance):
    kernel, reference = REFERENCES[name]
    X, Y = rows(60, dtype=dtype), rows(45, seed=1, dtype=dtype)
    expected = reference(X.astype(np.float64), Y.astype(np.float64))
    got = kernel(X, Y)
    assert got.dtype == dtype
    assert_allclose(got, expected, rtol=0, atol=tolerance * np.abs(expected).max())


@each_kernel
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_diag_is_the_diagonal(kernel, dtype):
    X = rows(50, dtype=dtype)
    diagonal = kernel.diag(X)
    assert diagonal.shape == (50,)
    assert diagonal.dtype == dtype
    # The distance of a row to itself is a rounding of ‖x‖², and Matérn 1/2 takes its root.
    rough = isinstance(kernel, Matern) and kernel.nu == 0.5
    tolerance = 4 * np.sqrt(np.finfo(dtype).eps) if rough else 200 * np.finfo(dtype).eps
    scale = np.abs(diagonal).max()
    assert_allclose(np.diagonal(kernel(X, X)), diagonal, rtol=0, atol=tolerance * scale)
    assert_array_equal(kernel_diag(kernel, X), diagonal)


@each_kernel
def test_one_argument_means_both_sides(kernel):
    X = rows(20)
    assert_array_equal(kernel(X), kernel(X, X))


@pytest.mark.parametrize("cls", BUILTIN_KERNELS.values(), ids=BUILTIN_KERNELS)
def test_length_scales_per_feature_scale_the_columns(cls):
    X, Y = rows(30), rows(20, seed=1)
    expected = cls()(X / np.array(SCALES), Y / np.array(SCALES))
    assert_allclose(cls(SCALES)(X, Y), expected, rtol=1e-13, atol=1e-13)
    assert_allclose(cls(SCALES).diag(X), cls().diag(X / np.array(SCALES)), rtol=1e-13)


@each_kernel
def test_equal_rows_give_equal_columns_and_the_largest_value(kernel):
    X = np.repeat(rows(8), 5, axis=0)
    K = kernel(X, X)
    assert_array_equal(K[:, ::5], K[:, 4::5])
    assert_array_equal(K[::5], K[4::5])
    assert np.all(np.isfinite(K))
    if isinstance(kernel, RBF | Matern | Laplacian):
        assert np.abs(K[:5, :5] - 1).max() < 1e-7


@each_kernel
@pytest.mark.parametrize(("n", "m"), [(0, 5), (5, 0), (0, 0)])
def test_no_rows_give_an_empty_block(kernel, n, m):
    assert kernel(rows(n), rows(m)).shape == (n, m)
    assert kernel.diag(rows(n)).shape == (n,)


def test_cosine_of_a_zero_row_is_zero():
    X = np.vstack([np.zeros((1, 4)), rows(3)])
    kernel = Cosine()
    assert_array_equal(kernel(X, X)[0], np.zeros(4))
    assert_array_equal(kernel.diag(X), [0, 1, 1, 1])


def test_far_apart_rows_are_tiny_not_nan():
    X = np.array([[0.0], [1e15]], dtype=np.float32)
    for kernel in (RBF(), Matern(), Matern(nu=2.5), Laplacian()):
        K = kernel(X[:1], X[1:])
        assert 0 < K[0, 0] < 2e-17, kernel


def test_centred_rows_keep_float32_accuracy_and_raw_offsets_lose_it():
    """Why the encoding centres before float32: the kernels alone do not."""
    offset = np.full(4, 1e4)
    X = rows(80) + offset
    exact = RBF(1.0)(X, X)
    centred = (X - X.mean(axis=0)).astype(np.float32)
    assert np.abs(RBF(1.0)(centred, centred) - exact).max() < 2e-6
    raw = X.astype(np.float32)
    assert np.abs(RBF(1.0)(raw, raw) - exact).max() > 1e-2


# --- blocks and buffers -----------------------------------------------------------------


@each_kernel
def test_block_returns_out_and_overwrites_every_entry(kernel):
    X, Y = rows(70), rows(33, seed=1)
    out = np.full((70, 33), np.nan)
    assert kernel_block(kernel, X, Y, out) is out
    assert_array_equal(out, kernel(X, Y))
    out[:] = np.inf
    assert kernel.block(X[::-1].copy(), Y, out) is out
    assert_array_equal(out, kernel(X[::-1].copy(), Y))


@each_kernel
@pytest.mark.parametrize("extra", [-1, 0, 1])
def test_values_do_not_depend_on_where_sub_blocks_end(kernel, extra, monkeypatch):
    m = 300
    step = module._CACHE_BYTES // (8 * m) // 8 * 8
    X, Y = rows(step + extra), rows(m, seed=1)
    K = kernel(X, Y)
    assert_allclose(K[-3:], kernel(X[-3:], Y), rtol=0, atol=1e-13 * np.abs(K).max())
    monkeypatch.setattr(module, "_CACHE_BYTES", 8 * (17 * m + 5))
    assert_allclose(kernel(X, Y), K, rtol=0, atol=1e-13 * np.abs(K).max())
    monkeypatch.setattr(module, "_CACHE_BYTES", 1)  # below one row
    assert_allclose(kernel(X[:9], Y), K[:9], rtol=0, atol=1e-13 * np.abs(K).max())


def test_float32_out_from_float64_rows_is_computed_in_float32():
    X = rows(10)
    out = np.empty((10, 10), np.float32)
    assert_allclose(kernel_block(RBF(), X, X, out), RBF()(X, X), atol=1e-6)


@pytest.mark.parametrize("name", [*ALL_KERNELS, "user"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_strips_are_the_matrix_piece_by_piece(name, dtype, monkeypatch):
    kernel = Quadratic() if name == "user" else ALL_KERNELS[name]
    X, Y = rows(50, dtype=dtype), rows(11, seed=1, dtype=dtype)
    monkeypatch.setattr(module, "_CACHE_BYTES", 20 * 11 * np.dtype(dtype).itemsize)
    K = kernel(X, Y)
    covered, buffers = [], set()
    for part, strip in kernel_strips(kernel, X, Y):
        covered.append((part.start, part.stop))
        buffers.add(strip.__array_interface__["data"][0])
        assert strip.dtype == dtype
        tolerance = 10 * np.finfo(dtype).eps * np.abs(K).max()
        assert_allclose(strip, K[part], rtol=0, atol=tolerance)
    assert covered == [(0, 16), (16, 32), (32, 48), (48, 50)]
    assert len(buffers) == 1 or name == "user"
    assert list(kernel_strips(kernel, X[:0], Y)) == []


@pytest.mark.parametrize("kernel", [RBF(), Matern(), Laplacian()])
def test_tiny_float32_entries_are_cut_off_and_the_others_stay(kernel):
    """Products of entries such as 1e-30 are denormal, and slow."""
    X = np.linspace(0, 100, 400, dtype=np.float32)[:, None]
    exact = kernel(X.astype(np.float64), X[:1].astype(np.float64))[:, 0]
    K = kernel(X, X[:1])[:, 0]
    assert np.float32(K.min()) ** 2 > 1000 * np.finfo(np.float32).tiny
    assert K[exact < 1e-20].max() < 2e-17
    assert (exact < 1e-20).any()
    assert_allclose(K, exact, rtol=0, atol=5e-7)
    small = (exact > 1e-12) & (exact < 1e-6)
    # An entry of exp(−27) has its relative accuracy still, up to the rounding of the distance.
    assert_allclose(K[small], exact[small], rtol=2e-2)


# --- parameters -------------------------------------------------------------------------


@pytest.mark.parametrize("cls", BUILTIN_KERNELS.values(), ids=BUILTIN_KERNELS)
@pytest.mark.parametrize("bad", [0, -1.0, np.nan, np.inf, (), (1.0, 0.0), [[1.0]], (1.0, np.nan)])
def test_bad_length_scales_are_refused(cls, bad):
    with pytest.raises(InvalidParameterError, match="length_scale must be"):
        cls(bad)


@each_kernel
def test_length_scales_of_another_number_of_features_are_refused(kernel):
    wrong = type(kernel)((1.0, 2.0, 3.0))
    with pytest.raises(InvalidParameterError, match="3 values, but the rows have 4 features"):
        wrong(rows(5), rows(5))


@pytest.mark.parametrize("nu", [1, 0, -1.5, np.nan, np.inf])
def test_matern_refuses_other_smoothness(nu):
    with pytest.raises(InvalidParameterError, match=r"0\.5, 1\.5 or 2\.5"):
        Matern(1.0, nu)


@pytest.mark.parametrize("parameters", [{"degree": 0}, {"degree": 1.5}, {"degree": -2}])
def test_polynomial_refuses_bad_degrees(parameters):
    with pytest.raises(InvalidParameterError, match="degree must be an integer"):
        Polynomial(**parameters)


@pytest.mark.parametrize("coef0", [-0.1, np.nan, np.inf])
def test_polynomial_refuses_bad_constants(coef0):
    with pytest.raises(InvalidParameterError, match="coef0 must be finite"):
        Polynomial(coef0=coef0)


def test_errors_are_squeak_errors_and_value_errors():
    assert issubclass(InvalidParameterError, SqueakError)
    assert issubclass(InvalidParameterError, ValueError)
    assert issubclass(InvalidKernelError, ValueError)


def test_kernels_are_frozen_comparable_values():
    assert RBF(2) == RBF(2.0)
    assert RBF([1, 2]) == RBF((1.0, 2.0))
    assert RBF(np.array([1, 2])).length_scale == (1.0, 2.0)
    assert hash(RBF([1, 2])) == hash(RBF((1.0, 2.0)))
    assert RBF(2) != Laplacian(2)
    with pytest.raises(AttributeError):
        RBF(2).length_scale = 3.0


# --- names, configurations, user kernels --------------------------------------------------


@pytest.mark.parametrize("name", BUILTIN_KERNELS)
def test_make_kernel_by_name(name):
    made = make_kernel(name.upper(), 2.0)
    assert type(made) is BUILTIN_KERNELS[name]
    assert made.length_scale == 2.0
    assert isinstance(made, Kernel)


def test_make_kernel_returns_objects_as_they_are():
    kernel = RBF(3.0)
    assert make_kernel(kernel, 1.0) is kernel


def test_make_kernel_names_the_known_ones_for_an_unknown_name():
    with pytest.raises(InvalidParameterError, match=r"unknown kernel 'gauss'.*rbf.*cosine"):
        make_kernel("gauss", 1.0)


@pytest.mark.parametrize("bad", [3, None, RBF, lambda X, Y: X @ Y.T])
def test_make_kernel_refuses_what_has_no_protocol(bad):
    with pytest.raises(InvalidParameterError, match="kernel must be a name or an object"):
        make_kernel(bad, 1.0)


@each_kernel
def test_kernel_config_round_trip(kernel):
    config = kernel_config(kernel)
    assert all(isinstance(v, str | int | float | list) for v in config.values())
    assert kernel_from_config(config) == kernel


class Quadratic:
    """A user's kernel: (xᵀy)² + xᵀy, in plain numpy."""

    def __call__(self, X, Y):
        products = X @ Y.T
        return products**2 + products

    def diag(self, X):
        norms = np.sum(X**2, axis=1)
        return norms**2 + norms


def test_config_of_a_user_kernel_cannot_be_loaded_without_it():
    config = kernel_config(Quadratic())
    assert config["name"] == "custom"
    assert "Quadratic" in config["class"]
    with pytest.raises(InvalidKernelError, match=r"Quadratic.*load\(path, kernel=\.\.\.\)"):
        kernel_from_config(config)


def test_a_user_kernel_runs_from_squeak_to_prediction():
    kernel = make_kernel(Quadratic(), 1.0)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 3))
    y = X[:, :1] * X[:, 1:2] + X[:, 2:]  # in the span of the kernel
    parameters = SqueakParameters(gamma=0.5)
    state = finish(kernel, squeak(kernel, X, parameters, rng), parameters, rng)
    # 9 dimensions hold all of it: more rows than that, far fewer than n.
    assert 9 <= len(state.dictionary) < 300
    for nystrom in (
        projected_map(kernel, state.dictionary.points),
        regularized_map(kernel, state.dictionary, 1e-6),
    ):
        theta = solve_direct(normal_equations(nystrom, X, y), 1e-4)
        new = rng.normal(size=(50, 3))
        prediction = kernel(new, state.dictionary.points) @ nystrom.coefficients(theta)
        assert_allclose(prediction, new[:, :1] * new[:, 1:2] + new[:, 2:], atol=1e-3)


# --- check_kernel -------------------------------------------------------------------------


class FromFunctions:
    def __init__(self, matrix, diag=None):
        self.matrix, self.diagonal = matrix, diag

    def __call__(self, X, Y):
        return self.matrix(X, Y)

    def diag(self, X):
        return np.diagonal(self.matrix(X, X)) if self.diagonal is None else self.diagonal(X)


@each_kernel
def test_check_kernel_accepts_the_built_in_ones(kernel):
    check_kernel(kernel, rows(120, dtype=np.float32))
    check_kernel(kernel, np.repeat(rows(10), 8, axis=0))
    check_kernel(kernel, rows(0))


NOT_KERNELS = {
    "transposed shape": (FromFunctions(lambda X, Y: np.ones((len(X), 1))), "returned shape"),
    "one number": (FromFunctions(lambda X, Y: np.float64(1), lambda X: X[:, 0]), "returned shape"),
    "asymmetric": (FromFunctions(lambda X, Y: X[:, :1] + 2 * Y[:, :1].T), "not symmetric"),
    "sigmoid": (
        FromFunctions(lambda X, Y: np.tanh(2 * X @ Y.T - 1)),
        "not positive semidefinite.*eigenvalue -",
    ),
    "minus distance": (
        FromFunctions(lambda X, Y: -pairwise.euclidean_distances(X, Y)),
        "not positive semidefinite",
    ),
    "nan": (FromFunctions(lambda X, Y: np.log(X @ Y.T)), "NaN or infinity"),
    "infinite": (FromFunctions(lambda X, Y: np.full((len(X), len(Y)), np.inf)), "infinity"),
    "diagonal disagrees": (
        FromFunctions(RBF(), lambda X: np.full(len(X), 1.01)),
        "diag.*differs.* 0.01",
    ),
    "diagonal of a wrong shape": (FromFunctions(RBF(), lambda X: np.ones((len(X), 1))), "diag"),
    "diagonal with nan": (FromFunctions(RBF(), lambda X: np.full(len(X), np.nan)), "diag"),
}


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
@pytest.mark.parametrize("case", NOT_KERNELS)
def test_check_kernel_refuses(case):
    kernel, message = NOT_KERNELS[case]
    with pytest.raises(InvalidKernelError, match=message):
        check_kernel(kernel, rows(40))


def test_a_user_kernel_is_checked_at_every_block():
    with pytest.raises(InvalidKernelError, match=r"returned shape \(4, 1\); expected \(4, 3\)"):
        kernel_block(NOT_KERNELS["transposed shape"][0], rows(4), rows(3))
    with pytest.raises(InvalidKernelError, match="NaN or infinity"):
        kernel_diag(NOT_KERNELS["diagonal with nan"][0], rows(4))


def test_a_user_kernel_writes_into_the_buffer():
    out = np.full((4, 3), np.nan)
    X, Y = rows(4), rows(3)
    assert kernel_block(Quadratic(), X, Y, out) is out
    assert_array_equal(out, Quadratic()(X, Y))


@pytest.mark.parametrize("kernel", [RBF(2.0), Matern(2.0, 0.5), Matern(2.0), Matern(2.0, 2.5)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rows_whose_squares_overflow_are_far_away(kernel, dtype):
    """Where 0 · ∞ would be NaN."""
    Y = np.array([[-0.5, 1.0], [0.0, 3.0]], dtype)
    far = np.finfo(dtype).max ** np.array([0.45, 0.5, 0.55, 0.9])
    X = np.concatenate([np.outer(far, [1, 0]), np.outer(far, [-1, 1])]).astype(dtype)
    with np.errstate(all="raise", under="ignore"):
        for block in (kernel(X, Y), kernel(Y, X)):
            assert (block >= 0).all()
            assert block.max() < 0.1 * np.finfo(np.float64).eps  # of an entry 1


def test_the_text_of_a_kernel_fits_a_line():
    assert brief_kernel(str(Matern(2.8173503673908726))) == "Matern(length_scale=2.817, nu=1.5)"
    assert (
        brief_kernel(str(RBF((0.25, 1e-7 / 3, 3.0)))) == "RBF(length_scale=(0.25, 3.333e-08, 3))"
    )
    many = brief_kernel(str(RBF(tuple(np.linspace(1, 2, 306)))))
    assert many.startswith("RBF(length_scale=(1, 1.003, ")
    assert many.endswith(", … 306 in all))")
    assert len(many) < 100
    assert brief_kernel("mine.Kernel()") == "mine.Kernel()"

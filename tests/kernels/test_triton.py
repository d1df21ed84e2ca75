"""The fused kernels' arithmetic without a GPU, through Triton's interpreter: against the reference in float64.

On a machine with a CUDA device tests/test_gpu.py runs the compiled kernels instead.
"""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from ordinal_entropy import kernels
from ordinal_entropy.functional import diversity
from ordinal_entropy.kernels.weights import POWERS
from ordinal_entropy.kernels.weights import extremes as extremes_by_blocks

triton = pytest.importorskip("triton", reason="the interpreter is Triton's")

from ordinal_entropy.kernels import few, fused  # noqa: E402

pytestmark = [
    pytest.mark.usefixtures("interpreter"),
    pytest.mark.skipif(torch.cuda.is_available(), reason="tests/test_gpu.py does it on the device"),
]

LIKE_L2 = {"weighting": "l2", "distance": "l2", "project": True, "rescale": "max"}
DISTANCES = {"projected": ("l2", True), "plain": ("l2", False), "cosine": ("cosine", True)}


@pytest.fixture(autouse=True)
def way(request, monkeypatch):
    """Kernels of "few" points wherever the points are few, or those of "many", the default, everywhere."""
    few_points = few.fits
    only = getattr(request, "param", "many") == "few"
    monkeypatch.setattr(few, "fits", lambda g, m, d, _: only and few_points(g, m, d, 10**6))
    fused._program.cache_clear()  # another test may have changed what they are made of


BOTH = pytest.mark.parametrize("way", ["many", "few"], indirect=True)


@pytest.fixture
def scratch(monkeypatch):
    """Sets the number of bytes for the pulls of a block of pairs."""

    def change(size):
        monkeypatch.setattr(fused, "SCRATCH", size)
        fused._program.cache_clear()

    return change


@pytest.fixture
def bits(monkeypatch):
    """Sets the number of bytes that may say which pairs are close."""

    def change(size):
        monkeypatch.setattr(fused, "BITS", size)
        fused._program.cache_clear()

    return change


@pytest.fixture
def high():
    """One product on the tensor cores instead of three."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    yield
    torch.set_float32_matmul_precision(before)


def problem(g=2, m=100, d=20, t=1, seed=0, zero=True):
    """Some amounts are 0, and a row may be zero."""
    generator = torch.Generator().manual_seed(seed)
    points = torch.randn(g, m, d, generator=generator)
    points[0, m // 2] *= not zero
    values = 40 * torch.rand(g, m, t, generator=generator) - 20
    return points, values, torch.randint(0, 3, (g, m), generator=generator).float()


def clusters(spread, number, m, d=16):
    """Points around one or several places."""
    generator = torch.Generator().manual_seed(0)
    places = torch.nn.functional.normalize(torch.randn(number, d, generator=generator), dim=1)
    points = places[torch.arange(m) % number] + spread * torch.randn(m, d, generator=generator) / d**0.5
    return points[None], torch.rand(1, m, 1, generator=generator), torch.ones(1, m)


def reference(points, values, amount, **options):
    """Means by the reference, one a group."""
    options = LIKE_L2 | {"num_pairs": None, "generator": None, "eager": True} | options
    with kernels.use("reference"):
        groups = zip(*(x.split(1) for x in (points, values, amount)), strict=True)
        return torch.stack([kernels.pair_mean(*group, **options).sum() for group in groups])


def exact(points, values, amount, **options):
    """Means and gradient by the reference in float64."""
    x = points.double().requires_grad_()
    means = reference(x, values.double(), amount.double(), **options)
    return means.detach(), torch.autograd.grad(means.sum(), x)[0]


def arguments(times=1.0, coarse=False, **options):
    """What the fused kernels take behind the tensors."""
    options = LIKE_L2 | options
    return POWERS[options["weighting"]], options["distance"], options["project"], options["rescale"], times, coarse


def found(points, values, amount, **options):
    """Means and gradient by the fused kernels."""
    means, gradient = fused.means_and_gradient(points, values, amount, *arguments(**options), True)
    assert means.shape == (() if len(points) == 1 else (len(points),))
    return means.reshape(len(points)), gradient


def error(answer, expected):
    """Relative; an expected 0 has to be 0."""
    assert answer.shape == expected.shape
    assert answer.isfinite().all()
    return ((answer.double() - expected.double()).norm() / expected.double().norm().clamp_min(1e-30)).item()


def errors(parts, **options):
    """Of the means and of the gradient."""
    return [error(*both) for both in zip(found(*parts, **options), exact(*parts, **options), strict=True)]


# -------------------------------------------------------------------------------------------------------- the oracle


@pytest.mark.parametrize("t", [1, 3])
@pytest.mark.parametrize("rescale", ["max", "authors", "none"])
@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("weighting", POWERS)
def test_value_and_gradient_are_those_of_the_reference(weighting, distance, rescale, t):
    distance, project = DISTANCES[distance]
    options = {"weighting": weighting, "distance": distance, "project": project, "rescale": rescale}
    m = 80 if t == 1 else 40  # two tiles, or one
    assert max(errors(problem(1, m, 20, t), **options)) < 2e-6


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize(
    ("g", "m", "d"),
    [(3, 1, 3), (3, 2, 20), (2, 5, 130), (2, 64, 33), (2, 65, 3), (1, 128, 20), (1, 129, 130), (1, 150, 3)],
)
def test_sizes(g, m, d, distance):
    distance, project = DISTANCES[distance]
    assert max(errors(problem(g, m, d), distance=distance, project=project, rescale="authors")) < 2e-6


@pytest.mark.parametrize("way", ["few"], indirect=True)
@pytest.mark.parametrize("t", [1, 3])
@pytest.mark.parametrize("weighting", POWERS)
def test_few_points(weighting, t):
    """One or two programs a group, rows that do not fill the last."""
    for distance, project in DISTANCES.values():
        for rescale in ("max", "authors", "none"):
            options = {"weighting": weighting, "distance": distance, "project": project, "rescale": rescale}
            assert max(errors(problem(2, 20, 12, t), **options)) < 2e-7


@pytest.mark.parametrize("way", ["few"], indirect=True)
@pytest.mark.parametrize(("g", "m", "d"), [(3, 1, 3), (3, 2, 20), (2, 5, 130), (2, 32, 33), (1, 128, 20), (1, 3, 256)])
def test_sizes_of_few_points(g, m, d):
    assert few.fits(g, m, d, 132)
    for distance, project in DISTANCES.values():
        assert max(errors(problem(g, m, d), distance=distance, project=project, rescale="authors")) < 2e-6
    points, values, _ = problem(g, m, d)
    for one, other in zip(found(points, values, None), found(points, values, torch.ones(g, m)), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("way", ["few"], indirect=True)
@pytest.mark.parametrize("project", [True, False])
@pytest.mark.parametrize("number", [1, 5])
@pytest.mark.parametrize("spread", [1e-2, 1e-3, 1e-4, 1e-6])
def test_few_collapsed_points_keep_their_distances(spread, number, project):
    of_means, of_gradient = errors(clusters(spread, number, 100), project=project)
    assert of_means < 5e-7
    assert of_gradient < (5e-5 if number > 1 and spread == 1e-6 else 1e-6)


@BOTH
@settings(max_examples=6)
@given(st.integers(1, 3), st.integers(1, 20), st.integers(2, 40), st.integers(1, 4), st.integers(0, 10**6))
def test_any_small_shape(g, m, d, t, seed):
    """In one dimension, or from a zero row, the gradient at unit rows may be all rounding."""
    parts = problem(g, m, d, t, seed, zero=False)
    for distance, project in DISTANCES.values():
        assert max(errors(parts, distance=distance, project=project)) < 1e-5


@BOTH
@pytest.mark.parametrize("m", [20, 80])
def test_as_many_numbers_a_target_as_there_may_be(m):
    assert max(errors(problem(1, m, 5, kernels.choice._MOST_TARGETS), rescale="authors")) < 2e-6


@pytest.mark.parametrize("t", [1, 3])
@pytest.mark.parametrize("rescale", ["max", "authors"])
@pytest.mark.parametrize("m", [1, 20, 150])
def test_without_amounts_each_counts_once(m, rescale, t):
    points, values, amount = problem(2, m, 20, t)
    ones = torch.ones_like(amount)
    for a, b in zip(
        found(points, values, None, rescale=rescale), found(points, values, ones, rescale=rescale), strict=True
    ):
        assert torch.equal(a, b)


@BOTH
def test_without_amounts_under_vmap_and_twice_differentiated():
    points, values, amount = problem(3, 12)
    ones = torch.ones_like(amount)

    def means(x, y, a):
        return fused.pair_means(x[None], y[None], a, *arguments())

    gradient = torch.func.vmap(torch.func.grad(lambda x, y: means(x, y, None)))(points, values)
    for k in range(3):
        expected = torch.func.grad(lambda x: means(x, values[k], ones[:1]))(points[k])
        torch.testing.assert_close(gradient[k], expected, rtol=0, atol=0)
    x = points.clone().requires_grad_()
    first = [torch.autograd.grad(fused.pair_means(x, values, a, *arguments()).sum(), x, create_graph=True)[0]
             for a in (None, ones)]  # fmt: skip
    second = [torch.autograd.grad(one.square().sum(), x)[0] for one in first]
    torch.testing.assert_close(*second)


@BOTH
def test_times_is_a_factor():
    parts = problem(2, 10)
    for answer, expected in zip(found(*parts, times=-4.0), found(*parts), strict=True):
        assert torch.equal(answer, -4 * expected)


def test_extremes_over_all_pairs():
    _, values, amount = problem(3, 150, 1, 3)
    amount[1] = 0
    torch.testing.assert_close(fused.extremes(values, amount), extremes_by_blocks(values.double(), amount, 1.0))


# -------------------------------------------------------------------------------------------------- blocks of pairs


@pytest.mark.parametrize("processors", [1, 132])
@pytest.mark.parametrize("size", [2**17, 2**18, 2**25])
def test_a_block_of_pairs_fits_the_scratch(size, processors, scratch):
    scratch(size)
    for g in (1, 3, 40):
        for rows in (256, 384, 2048, 16384):
            for width, tile, parts in ((64, 64, 2), (512, 128, 2), (512, 128, 1)):
                groups, side = fused.blocks_of_pairs(g, rows, width, tile, parts, processors)
                assert 1 <= groups <= g
                assert side % tile == 0
                assert 2 * parts * groups * side**2 <= size


@pytest.mark.parametrize(
    ("g", "m", "groups", "side", "distance"),
    [
        (2, 180, 1, 64, "plain"),  # 3 x 3 blocks of a tile
        (2, 180, 2, 128, "projected"),  # 2 x 2 blocks, the last one smaller
        (3, 100, 2, 64, "cosine"),  # 2 groups, then the third
    ],
)
def test_blocks_of_pairs_do_not_show(g, m, groups, side, distance, monkeypatch):
    distance, project = DISTANCES[distance]
    parts = problem(g, m, 20)
    parts[2][1, 60:] = 0  # later blocks are empty
    means, gradient = found(*parts, distance=distance, project=project)
    monkeypatch.setattr(fused, "blocks_of_pairs", lambda *_: (groups, side))
    means_again, gradient_again = found(*parts, distance=distance, project=project)
    assert error(means_again, means) < 2e-7
    assert error(gradient_again, gradient) < 5e-7
    assert (gradient_again[1, 60:] == 0).all()


@pytest.mark.parametrize(("processors", "distance"), [(1, "plain"), (20, "cosine")])
def test_large_tiles_and_their_columns_in_parts(processors, distance, monkeypatch):
    distance, project = DISTANCES[distance]
    monkeypatch.setattr(fused, "_processors", lambda _: processors)
    assert max(errors(problem(1, 520, 65), distance=distance, project=project)) < 2e-6


@pytest.mark.parametrize("t", [1, 3])
@pytest.mark.parametrize("rescale", ["authors", "none"])
@pytest.mark.parametrize("distance", DISTANCES)
def test_a_small_group_prepared_like_a_large_one(distance, rescale, t, monkeypatch):
    monkeypatch.setattr(fused, "FEW", 0)
    distance, project = DISTANCES[distance]
    assert max(errors(problem(2, 100, 20, t), distance=distance, project=project, rescale=rescale)) < 2e-6


def test_programs_of_a_row(monkeypatch):
    monkeypatch.setattr(fused, "triton", triton)
    monkeypatch.setattr(fused, "_processors", lambda _: 1000)
    assert max(errors(problem(1, 5, 64))) < 2e-6


# ------------------------------------------------------------------------------------------------------ empty slots


@BOTH
@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize(("m", "more"), [(1, 4), (40, 20), (60, 90)])
def test_empty_slots_at_the_end_change_nothing(m, more, distance):
    distance, project = DISTANCES[distance]
    parts = problem(2, m)
    padded = [torch.cat([x, x.new_zeros(2, more, *x.shape[2:])], 1) for x in parts]
    means, gradient = found(*parts, distance=distance, project=project, rescale="authors")
    means_padded, gradient_padded = found(*padded, distance=distance, project=project, rescale="authors")
    assert error(means_padded, means) < 2e-7
    assert error(gradient_padded[:, :m], gradient) < 1e-6
    assert (gradient_padded[:, m:] == 0).all()


@BOTH
@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("m", [40, 150])
def test_rows_that_do_not_count_change_nothing(m, distance):
    distance, project = DISTANCES[distance]
    points, values, amount = problem(1, m)
    there = amount[0] > 0
    points[:, ~there], values[:, ~there] = 1e3, -1e3
    options = {"distance": distance, "project": project, "rescale": "authors"}
    means, gradient = found(points[:, there], values[:, there], amount[:, there], **options)
    means_all, gradient_all = found(points, values, amount, **options)
    assert error(means_all, means) < 5e-7
    assert error(gradient_all[:, there], gradient) < 1e-6
    assert (gradient_all[:, ~there] == 0).all()


@BOTH
@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("m", [10, 80])
def test_a_group_without_a_pair_is_zero(m, distance):
    distance, project = DISTANCES[distance]
    points, values, amount = problem(3, m)
    amount[0], amount[1] = 0, 0  # no row in the first, a single one in the second
    amount[1, 3] = 1
    means, gradient = found(points, values, amount, distance=distance, project=project)
    assert (means[:2] == 0).all()
    assert (gradient[:2] == 0).all()
    assert means[2] > 0


# --------------------------------------------------------------------------------------------------------- accuracy


@pytest.mark.parametrize("project", [True, False])
@pytest.mark.parametrize("number", [1, 2, 5])
@pytest.mark.parametrize("spread", [1e-2, 1e-3, 1e-4, 1e-6])
def test_collapsed_points_keep_their_distances(spread, number, project):
    """Around several places, what the pairs within one say is far below the rest of the gradient, kept in float32."""
    for m in (100, 300) if spread == 1e-6 and number != 2 else (100,):  # the rest for the sake of time
        of_means, of_gradient = errors(clusters(spread, number, m), project=project)
        assert of_means < 5e-7
        assert of_gradient < (5e-5 if number > 1 and spread == 1e-6 else 1e-6)


@pytest.mark.parametrize("with_bits", [True, False])
@pytest.mark.parametrize("project", [True, False])
@pytest.mark.parametrize(("copies", "d"), [(2, 16), (9, 70), (30, 16)])
def test_few_close_pairs_among_others(copies, d, project, with_bits, bits):
    """Some rows have neighbours, far and near, in tiles on and off the diagonal: few, several, and many of one row."""
    bits(fused.BITS if with_bits else 0)
    generator = torch.Generator().manual_seed(0)
    points, values, amount = problem(2, 150, d, zero=False)
    rows = torch.randperm(150, generator=generator)[:copies]
    noise = torch.randn(2, copies, d, generator=generator) * 10.0 ** -torch.arange(copies).remainder(5)[:, None]
    points[:, rows] = points[:, rows[:1]] + 0.01 * noise
    amount[:, rows] = 1
    of_means, of_gradient = errors((points, values, amount), project=project)
    assert of_means < 1e-6
    assert of_gradient < 2e-6


@pytest.mark.parametrize("first", [0, 50])
def test_one_row_with_many_neighbours_that_are_not_close_to_each_other(first):
    """More than are done one after the other, and too few for the whole tile; in one tile and across two."""
    points, values, amount = problem(1, 128, 200, zero=False)
    points /= points.norm(dim=2, keepdim=True)
    spokes = torch.nn.functional.normalize(torch.randn(24, 200, generator=torch.Generator().manual_seed(1)), dim=1)
    points[0, first + 1 : first + 25] = points[0, first] + 0.032 * spokes
    amount[:] = 1
    of_means, of_gradient = errors((points, values, amount))
    assert of_means < 1e-6
    assert of_gradient < 1e-5  # pairs that are nearly close have the error of a product


@BOTH
def test_a_close_pair_is_exact_beside_distant_ones():
    """Two rows at 1e-5 of each other, heavily weighted: their pull is a unit vector that no product would find."""
    points, values, amount = problem(1, 100, 12, zero=False)
    points[0, 70] = points[0, 3] + 1e-5 * torch.eye(12)[0]
    values[0, 3], values[0, 70] = -1e3, 1e3
    amount[:] = 1
    _, gradient = found(points, values, amount, project=False, rescale="none")
    _, expected = exact(points, values, amount, project=False, rescale="none")
    assert error(gradient[0, 70], expected[0, 70]) < 1e-5
    assert error(gradient[0, 3], expected[0, 3]) < 1e-5


def test_high_precision_is_one_product(high):
    of_means, of_gradient = errors(problem(1, 300, 32))
    assert of_means < 1e-4
    assert 1e-6 < of_gradient < 1e-3


@BOTH
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("m", [10, 80])
def test_half_precision_is_read_as_it_is(m, dtype):
    points, values, amount = problem(1, m)
    points = points.to(dtype)
    means, gradient = found(points, values, amount)
    expected = found(points.float(), values, amount, coarse=True)
    assert error(gradient, found(points.float(), values, amount)[1]) < 1e-3
    assert means.dtype == gradient.dtype == torch.float32
    assert torch.equal(means, expected[0])
    assert torch.equal(gradient, expected[1])
    x = points.clone().requires_grad_()
    fused.pair_means(x, values, amount, *arguments()).sum().backward()
    assert torch.equal(x.grad, gradient.to(dtype))


# ------------------------------------------------------------------------------------------------------------ edges


@BOTH
@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("m", [8, 80])
def test_rows_that_coincide(m, distance):
    """Half of the rows are copies: their own distance is 0, without a gradient."""
    distance, project = DISTANCES[distance]
    points, values, amount = problem(1, m)
    points[:, 1::2] = points[:, ::2]
    of_means, of_gradient = errors((points, values, amount), distance=distance, project=project)
    assert of_means < 2e-6
    assert of_gradient < 2e-6


@BOTH
@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("m", [8, 80])
@pytest.mark.parametrize("kind", ["equal", "zero", "parallel"])
def test_all_rows_in_one_place(kind, m, distance):
    distance, project = DISTANCES[distance]
    points, values, amount = problem(1, m)
    lengths = 2.0 ** (torch.arange(m) % 7 - 3)[:, None] if kind == "parallel" else torch.ones(m, 1)
    points[:] = 0 if kind == "zero" else lengths * torch.randn(20, generator=torch.Generator().manual_seed(1))
    means, gradient = found(points, values, amount, distance=distance, project=project)
    assert gradient.isfinite().all()
    expected, expected_gradient = exact(points, values, amount, distance=distance, project=project)
    torch.testing.assert_close(means.double(), expected, rtol=1e-6, atol=1e-9)
    if kind == "parallel" and not project:  # on a line
        assert error(gradient, expected_gradient) < 2e-6
    else:
        assert (gradient.abs() <= (1e-15 if distance == "cosine" else 0)).all()


@BOTH
@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("m", [8, 80])
def test_nan_features_give_a_nan_mean_of_their_group_alone(m, distance):
    distance, project = DISTANCES[distance]
    points, values, amount = problem(2, m)
    amount[0, 3] = 1
    points[0, 3, 2] = torch.nan
    means, gradient = found(points, values, amount, distance=distance, project=project)
    assert means[0].isnan()
    assert error(means[1:], exact(points[1:], values[1:], amount[1:], distance=distance, project=project)[0]) < 2e-6
    assert gradient[1].isfinite().all()


# --------------------------------------------------------------------------------------------------------- autograd


@BOTH
def test_backward_is_the_gradient_of_the_forward_pass():
    points, values, amount = problem(3, 10)
    _, gradient = found(points, values, amount)
    for g, incoming in ((3, torch.tensor([2.0, -3.0, 0.5])), (1, torch.tensor(2.0))):  # of one group a scalar
        x = points[:g].clone().requires_grad_()
        fused.pair_means(x, values[:g], amount[:g], *arguments()).backward(incoming)
        assert torch.equal(x.grad, gradient[:g] * incoming.reshape(g, 1, 1))


@BOTH
def test_vmap_is_a_loop():
    stack = [x.unflatten(0, (2, 2)) for x in problem(4, 5)]  # two problems of two groups

    def means(x, y, a):
        return fused.pair_means(x, y, a, *arguments())

    assert torch.equal(torch.func.vmap(means)(*stack), torch.stack([means(*one) for one in zip(*stack, strict=True)]))
    slope = torch.func.grad(lambda *one: means(*one).sum())
    expected = torch.stack([found(*one)[1] for one in zip(*stack, strict=True)])
    assert torch.equal(torch.func.vmap(slope)(*stack), expected)


@BOTH
@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("rescale", ["max", "authors", "none"])
def test_second_derivative_is_that_of_the_reference(distance, rescale):
    distance, project = DISTANCES[distance]
    options = {"distance": distance, "project": project, "rescale": rescale}
    points, values, amount = problem(2, 7, 4, zero=False)
    direction = torch.randn(points.shape, generator=torch.Generator().manual_seed(1))
    x, y = points.clone().requires_grad_(), points.double().requires_grad_()
    second = []
    for z, means in (
        (x, fused.pair_means(x, values, amount, *arguments(**options))),
        (y, reference(y, values.double(), amount.double(), **options)),
    ):
        first = torch.autograd.grad(means.square().sum(), z, create_graph=True)[0]
        second.append(torch.autograd.grad((first * direction).sum(), z)[0])
    assert error(*second) < 1e-5


@BOTH
@pytest.mark.parametrize("rescale", ["max", "authors"])
def test_one_group_may_come_without_its_dimension(rescale):
    """The same to the last bit, second derivatives and the batches of vmap too."""
    points, values, _ = problem(1, 7, 4, zero=False)
    answers = []
    for x in (points.clone().requires_grad_(), points[0].clone().requires_grad_()):
        mean = fused.pair_means(x, values, None, *arguments(rescale=rescale))
        first = torch.autograd.grad(mean, x, create_graph=True)[0]
        second = torch.autograd.grad(first.square().sum(), x)[0]
        assert mean.shape == () and first.shape == second.shape == x.shape
        answers.append((mean, first.reshape(7, 4), second.reshape(7, 4)))
    assert all(torch.equal(one, other) for one, other in zip(*answers, strict=True))
    means = torch.func.vmap(lambda x: fused.pair_means(x, values, None, *arguments(rescale=rescale)))(points)
    assert torch.equal(means, answers[0][0].reshape(1))


@pytest.mark.slow
def test_the_operator_is_registered_as_torch_wants_it():
    points, values, amount = problem(2, 5, 3, zero=False)
    torch.library.opcheck(fused.operator, (points.clone().requires_grad_(), values, amount, *arguments(), True))
    for g, with_gradient in ((1, True), (2, False)):  # a scalar, no gradient: other shapes
        parts = points[:g], values[:g], amount[:g], *arguments(), with_gradient
        torch.library.opcheck(fused.operator, parts, test_utils=("test_schema", "test_faketensor"))


# ----------------------------------------------------------------------------------------------------------- memory


class Allocations(TorchDispatchMode):
    """Shapes of the tensors made by ``torch.empty`` and ``torch.empty_like``, and the most elements of any tensor."""

    def __init__(self):
        super().__init__()
        self.shapes, self.largest = [], 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        answer = function(*args, **(kwargs or {}))
        if function in (torch.ops.aten.empty.memory_format, torch.ops.aten.empty_like.default):
            self.shapes.append(tuple(answer.shape))
        for x in answer if isinstance(answer, (tuple, list)) else [answer]:
            if isinstance(x, torch.Tensor):
                self.largest = max(self.largest, x.untyped_storage().nbytes())
        return answer


@BOTH
@pytest.mark.parametrize("m", [10, 80])
def test_without_a_gradient_none_is_computed(m):
    points, values, amount = problem(2, m)
    x = points.clone().requires_grad_()
    options = arguments()
    with Allocations() as with_gradient:
        expected = fused.pair_means(x, values, amount, *options)
    with Allocations() as without, torch.no_grad():
        means = fused.pair_means(x, values, amount, *options)
    with Allocations() as constant:
        fused.pair_means(points, values, amount, *options)
    assert tuple(points.shape) in with_gradient.shapes
    assert tuple(points.shape) not in without.shapes + constant.shapes
    assert not means.requires_grad
    assert torch.equal(means, expected)


def test_no_m_by_m_matrix(scratch):
    m = 300
    parts = problem(1, m, 20, 2)
    with Allocations() as seen:
        found(*parts, rescale="authors")
    assert seen.largest >= 4 * m * m  # the scratch holds all pairs
    scratch(2**16)
    with Allocations() as seen:
        found(*parts, rescale="authors")
    assert seen.largest < 4 * m * m


# --------------------------------------------------------------------------------------------------------- dispatch


@BOTH
@pytest.mark.parametrize("options", [{}, {"grouping": "none"}, {"distance": "cosine", "rescale": "authors"}], ids=str)
def test_fused_through_the_public_function(options):
    generator = torch.Generator().manual_seed(0)
    features, targets = torch.randn(40, 6, generator=generator), torch.randint(15, (40,), generator=generator).float()
    answers = []
    for kernel in ("fused", "reference"):
        x = features.clone().requires_grad_()
        with kernels.use(kernel):
            value = diversity(x, targets, **options)
        value.backward()
        answers.append((value.detach(), x.grad))
    torch.testing.assert_close(*answers, rtol=1e-5, atol=1e-7)


def test_fused_where_it_cannot_run_is_an_error(monkeypatch):
    x, y = torch.eye(4), torch.arange(4.0)
    with kernels.use("fused"):
        with pytest.raises(ValueError, match="cannot be used: it computes in float32, got float64"):
            diversity(x.double(), y)
        with pytest.raises(ValueError, match="targets of up to 32 numbers, got 33"):
            diversity(x, y[:, None].expand(4, 33))
        monkeypatch.delenv("TRITON_INTERPRET")
        with pytest.raises(ValueError, match="cannot be used: it needs a CUDA device, got cpu"):
            diversity(x, y)


def test_describe_says_whether_fused_can_run(monkeypatch, high):
    assert kernels.describe()["fused"].startswith("on the tensor cores, 1 product;")
    torch.set_float32_matmul_precision("highest")
    assert "3 products" in kernels.describe()["fused"]
    monkeypatch.delenv("TRITON_INTERPRET")
    assert kernels.describe()["fused"] == "not here: it needs a CUDA device, got cpu"
    monkeypatch.setattr(kernels.choice, "_HAS_TRITON", False)
    assert kernels.describe()["fused"] == "not here: it needs Triton, which is not installed"

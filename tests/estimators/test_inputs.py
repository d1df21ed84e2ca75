"""What is turned away at the door, the same for every estimator; precisions and devices."""

import pytest
import torch

from ordinal_entropy import estimators


def call(name, z, y=None):
    function = getattr(estimators, name)
    if name in ("mean_nn_entropy", "knn_entropy", "effective_rank"):
        return function(z)
    return function(z, torch.arange(len(z)) // 10 if y is None else y)


ALL = sorted(estimators.__all__)
WITH_TARGETS = ["conditional_entropy", "diversity_entropy", "mutual_information", "ordinality"]


def test_public_names():
    assert ALL == [
        "conditional_entropy",
        "diversity_entropy",
        "effective_rank",
        "knn_entropy",
        "mean_nn_entropy",
        "mutual_information",
        "ordinality",
    ]


@pytest.mark.parametrize("name", ALL)
class TestFeatures:
    def test_integers(self, name):
        with pytest.raises(TypeError, match=r"expected floating-point features, got torch.int64"):
            call(name, torch.ones(20, 2, dtype=torch.int64))

    def test_not_a_tensor(self, name):
        with pytest.raises(TypeError, match=r"expected features as a torch.Tensor, got list"):
            call(name, [[1.0, 2.0]] * 20)

    @pytest.mark.parametrize("shape", [(20,), (20, 2, 2), (20, 0)])
    def test_shape(self, name, shape):
        with pytest.raises(ValueError, match=r"expected features of shape \(n, d\) with d >= 1, got \(20"):
            call(name, torch.ones(shape))

    @pytest.mark.parametrize("n", [0, 1])
    def test_too_few_rows(self, name, n):
        with pytest.raises(ValueError, match=rf"expected at least \d rows of features, got {n}"):
            call(name, torch.ones(n, 2))

    def test_not_finite(self, name):
        z = torch.randn(20, 2, generator=torch.Generator().manual_seed(0))
        z[3, 1], z[4, 0] = torch.nan, torch.inf
        with pytest.raises(ValueError, match="expected finite features, got 2 NaN or infinite values"):
            call(name, z)


@pytest.mark.parametrize("name", WITH_TARGETS)
class TestTargets:
    @pytest.mark.parametrize("shape", [(7,), (7, 1), (20, 1, 1), (), (20, 0)])
    def test_shape(self, name, shape):
        with pytest.raises(ValueError, match=r"expected targets of shape \(20,\) or \(20, t\), got"):
            call(name, torch.rand(20, 2), torch.ones(shape))

    def test_not_finite(self, name):
        y = torch.ones(20)
        y[5] = torch.nan
        with pytest.raises(ValueError, match="expected finite targets, got 1 NaN or infinite values"):
            call(name, torch.rand(20, 2), y)

    def test_not_a_tensor(self, name):
        with pytest.raises(TypeError, match=r"expected targets as a torch.Tensor, got list"):
            call(name, torch.rand(20, 2), [1.0] * 20)

    def test_complex(self, name):
        with pytest.raises(TypeError, match=r"expected real targets, got torch.complex64"):
            call(name, torch.rand(20, 2), torch.ones(20, dtype=torch.complex64))

    def test_column_or_vector_integer_or_float(self, name, normal):
        z = normal(40, 3)
        y = torch.arange(40) // 10
        expected = call(name, z, y)
        for same in (y[:, None], y.float(), y.to(torch.int32)):
            torch.testing.assert_close(call(name, z, same), expected)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_precisions(name, dtype, normal):
    """The value is that of the same numbers in float64: nothing is lost beyond the rounding of the input."""
    z = normal(60, 4).to(dtype)
    value = call(name, z)
    assert value.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert value.shape == ()
    torch.testing.assert_close(value.double(), call(name, z.double()), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ALL)
def test_graph_where_it_makes_sense(name, normal):
    z = normal(40, 3).float().requires_grad_()
    value = call(name, z)
    if name in ("mutual_information", "ordinality"):
        assert not value.requires_grad
        return
    value.backward()
    assert z.grad.dtype == torch.float32
    assert z.grad.isfinite().all() and z.grad.abs().sum() > 0


@pytest.mark.parametrize("name", ALL)
def test_input_is_left_alone(name, normal):
    z = normal(40, 3)
    copy = z.clone()
    call(name, z)
    assert torch.equal(z, copy)


@pytest.mark.gpu
@pytest.mark.parametrize("name", ALL)
def test_gpu_equals_cpu(name, normal):
    z, y = normal(300, 5), torch.arange(300) // 10
    value = call(name, z.cuda(), y.cuda())
    assert value.is_cuda
    torch.testing.assert_close(value.cpu(), call(name, z, y), rtol=1e-9, atol=1e-9)

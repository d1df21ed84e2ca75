"""The fused kernels compile for GPUs that are not here, and fit their shared memory."""

import pytest
import torch

triton = pytest.importorskip("triton", minversion="3.6", reason="compiles for other GPUs as Triton 3.6 does")

from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402

from ordinal_entropy.kernels import close, directions, fused, grouped, maps, products  # noqa: E402

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:TRITON_DEFAULT_FP_FUSION is unset"),
    pytest.mark.filterwarnings("ignore:.*:DeprecationWarning"),
]

ROOM = {80: 166912, 86: 101376, 89: 101376, 90: 232448, 100: 232448, 120: 101376}  # bytes of shared memory a program
TYPES = dict.fromkeys(("halves", "scratch"), "*fp16")
TYPES |= dict.fromkeys(("double", "starts"), "*fp64")
TYPES |= dict.fromkeys(("order", "bits"), "*i32") | dict.fromkeys(("slot",), "*i64")
TYPES |= dict.fromkeys(("scale", "times"), "fp32") | dict.fromkeys(("plane", "image_step"), "i64") | {"maps": "*bf16"}
FLOATS = "single pulls gradient means sums points values amount targets keys share there rows centers inverse out"
FLOATS += " used zeros inverse_center pulled distance counts spread close over by_spread by_close smallest largest"
FLOATS += " by_picked"
TYPES |= dict.fromkeys(FLOATS.split(), "*fp32")
ANY = {"num_stages", "doubles", "singles", "m", "d", "n", "group0", "across", "repeats", "blocks"}  # of any size
ANY |= {"g", "count", "h", "w", "high", "wide", "image_step", "row_step", "column_step"}


def shared_memory(kernel, capability, constants, *, integers=(), **options):
    """Bytes that the kernel takes on such a GPU, compiled for aligned pointers and sizes."""
    signature, attributes = {}, {}
    for k, name in enumerate(kernel.arg_names):
        signature[name] = "constexpr" if name in constants else "i32" if name in integers else TYPES.get(name, "i32")
        if signature[name] != "constexpr" and name not in ANY:
            attributes[(k,)] = [["tt.divisibility", 16]]
    source = ASTSource(kernel, signature, constexprs=constants, attrs=attributes)
    return triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options).metadata.shared


@pytest.fixture
def device(monkeypatch):
    """A device of that much shared memory, as torch would describe it."""

    def of(capability):
        properties = type("Properties", (), {"shared_memory_per_block_optin": ROOM[capability]})
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
        fused._depth_and_stages.cache_clear()
        return torch.device("cuda", 0)

    yield of
    fused._depth_and_stages.cache_clear()


@pytest.mark.parametrize("capability", list(ROOM))
@pytest.mark.parametrize("tile", [64, 128])
@pytest.mark.parametrize("parts", [1, 2])
def test_products_fit(capability, tile, parts, device):
    depth, stages = fused._depth_and_stages(device(capability), tile, parts)
    options = {"num_warps": tile // 16, "num_stages": stages}
    integers = ("rows",)
    shape = {"PARTS": parts, "T": 1, "TILE": tile, "DEPTH": depth, "COSINE": False}
    for slab in {64, tile}:
        constants = shape | {"WIDTH": slab}
        assert (
            shared_memory(products.add_pulls, capability, constants, integers=integers, **options) <= ROOM[capability]
        )
    constants = shape | {"POWER": 1.0, "GRADIENT": True}
    assert shared_memory(products.take_pairs, capability, constants, integers=integers, **options) <= ROOM[capability]


@pytest.mark.parametrize("capability", [80, 86, 90, 120])
def test_the_rest_fits(capability):
    sizes = {"T": 2, "ROWS": 8, "COLS": 512}
    rows = {"integers": ("rows",)}
    calls = [
        (directions.measure, sizes | {"PROJECT": True}, rows),
        (
            directions.summarise,
            {"gap": None, "span": None, "POWER": 1.0, "RESCALE": True, "T": 2, "COLS": 64, "PARTS": 64},
            rows,
        ),
        (directions.split, sizes | {"PARTS": 2}, rows),
        (directions.measure, sizes | {"PROJECT": True, "amount": None}, rows),
        (directions.split, sizes | {"PARTS": 2, "amount": None}, rows),
        (
            directions.prepare,
            sizes | {"gap": None, "span": None, "PROJECT": True, "POWER": 1.0, "RESCALE": True, "HALVES": 2},
            rows,
        ),
        (
            close.take_close_pairs,
            {"POWER": 1.0, "GRADIENT": True, "T": 2, "TILE": 128, "ROWS": 32, "DEPTH": 16, "COLS": 128},
            rows | {"num_warps": 8},
        ),
        (
            close.take_close_pairs,
            {"bits": None, "POWER": 1.0, "GRADIENT": True, "T": 2, "TILE": 128, "ROWS": 32, "DEPTH": 16, "COLS": 128},
            rows | {"num_warps": 8},
        ),
        (directions.finish, sizes | {"PROJECT": True, "CLOSE": True, "GRADIENT": True, "TILE": 128, "BLOCK": 32}, rows),
        (fused._extremes, {"T": 2, "TILE": 64}, {}),
        (grouped._match, {"T": 2, "COPIES": 2, "BLOCK": 32, "SOME": 128, "COLS": 128}, {}),
        (grouped._match, {"T": 1, "COPIES": 1, "BLOCK": 32, "SOME": 128, "COLS": 16, "amount": None}, {}),
        (grouped._match, {"T": 1, "COPIES": 0, "BLOCK": 32, "SOME": 128, "COLS": 1, "zeros": None}, {}),
        (grouped._place, {"T": 1, "BINS": False, "BLOCK": 128, "amount": None}, {"num_warps": 4}),
        (grouped._place, {"T": 2, "BINS": True, "BLOCK": 4096}, {"num_warps": 8}),
        (grouped._place, {"T": 1, "BINS": True, "BLOCK": 8192}, {"num_warps": 16}),
        (grouped._average, {"FIRST": True, "UNIT": True, "ROWS": 4, "COLS": 512}, {}),
        (grouped._means, {"GROUPS": 8, "BLOCKS": 256}, {}),
        (grouped._means, {"GROUPS": 2048, "BLOCKS": 1, "means": None, "spread": None}, {}),
        (maps._pick, {"ROWS": 32, "COLS": 128}, {}),
        (maps._spread, {"DOWN": 4, "ACROSS": 4, "ROWS": 32, "COLS": 128}, {}),
    ]
    shape = {"COSINE": False, "POWER": 1, "ROWS": 4, "COLS": 512}
    calls += [
        (grouped._tight, shape | {"UNIT_CENTERS": True, "SHARED": True}, {}),
        (grouped._tight, shape | {"UNIT_CENTERS": True, "SHARED": True, "pulled": None}, {}),
        (grouped._back, shape | {"FIRST": True, "UNIT": True}, {}),
        (grouped._back, shape | {"FIRST": True, "UNIT": True, "by_spread": None}, {}),
    ]
    calls += [
        (grouped._tight, shape | {"UNIT_CENTERS": False, "SHARED": False, "amount": None}, {}),
        (grouped._back, shape | {"FIRST": True, "UNIT": True, "amount": None}, {}),
    ]
    of_pull = ("by_close", "over", "counts", "pulled", "centers", "amount", "inverse_center", "distance")
    calls.append((grouped._back, shape | {"FIRST": False, "UNIT": False} | dict.fromkeys(of_pull), {}))
    for kernel, constants, options in calls:
        assert shared_memory(kernel, capability, constants, **options) <= ROOM[capability], kernel.__name__

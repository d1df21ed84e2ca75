"""A split of rooms as a network sees it: against the files, loops and its own parts."""

import math
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from ordinal_entropy import methods
from ordinal_entropy.models import decoder
from ordinal_entropy.recipes.groups import LargeTraining
from ordinal_entropy.tasks.depth import data, generated
from ordinal_entropy.tasks.depth.augment import augmented, random_draws
from ordinal_entropy.tasks.depth.losses import masked_mse
from ordinal_entropy.tasks.depth.maps import CROP
from ordinal_entropy.tasks.depth.metrics import DepthScores, QuickRms
from ordinal_entropy.tasks.depth.views import PLACES, Views, load
from ordinal_entropy.training.large.fitting import fit
from ordinal_entropy.training.large.module import Callbacks, Training
from ordinal_entropy.vision.split import Data, Picked, Seen

SIZE = (48, 64)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rooms") / "set"
    generated.make(folder, count=40, size=SIZE)
    return folder


@pytest.fixture(scope="module")
def records(root):
    return data.records(root)[0]


def views_of(records, root, size=SIZE, hold=True) -> Views:
    found, kept, problems = load(records, root, size, hold=hold)
    assert kept == list(range(len(records))) and not problems and found.held == hold
    return found


def whole(views: Views, *rows: int) -> Seen:
    raw = [] if views.held else [torch.stack(each) for each in zip(*map(views.read, rows), strict=True)]
    return views.seen(Picked(torch.tensor(rows), rows, raw), None)


def test_a_batch_to_predict_is_what_the_files_hold(root, records):
    views = views_of(records, root)
    assert views.pixels.dtype == torch.uint8 and views.millimetres.dtype == torch.int16
    assert views.pixels.is_contiguous(memory_format=torch.channels_last)
    seen = whole(views, 5, 0, 7)
    assert seen.targets.shape == seen.mask.shape == (3, 1, *SIZE)
    for place, row in enumerate((5, 0, 7)):
        image, depth = data.read(records[row])
        assert np.array_equal(seen.images[place].permute(1, 2, 0).numpy(), image)
        assert np.array_equal(seen.targets[place, 0].numpy(), depth)  # millimetres lose nothing
        assert np.array_equal(seen.mask[place, 0].numpy(), (depth > 0.001) & (depth < 10))


def test_what_is_read_is_what_is_held(root, records):
    held, streamed = (views_of(records, root, (30, 44), hold) for hold in (True, False))
    for left, right in zip(whole(held, 3, 1), whole(streamed, 3, 1), strict=True):
        assert left is right is None or torch.equal(left, right)
    rows = torch.tensor([9, 2])
    taken, own = streamed.take(rows), held.take(rows)
    assert taken.held and torch.equal(taken.pixels, own.pixels) and torch.equal(taken.millimetres, own.millimetres)
    part = streamed.part(rows)
    assert not part.held and part.records == own.records == (records[9], records[2])


def test_other_sizes_are_resized(root, records):
    views = views_of(records[:1], root, (31, 40))
    image, depth = data.read(records[0])
    expected = Image.fromarray(image).resize((40, 31), Image.Resampling.BILINEAR)
    assert np.array_equal(views.pixels[0].permute(1, 2, 0).numpy(), np.array(expected))
    for i in range(31):
        for j in range(40):
            nearest = depth[int((i + 0.5) * 48 / 31), int((j + 0.5) * 64 / 40)]
            assert views.millimetres[0, i, j] == round(1000 * float(nearest))


def test_millimetres_of_any_depth(tmp_path):
    depths = np.array([[0, 1, 9999, 10000, 32767, 32768, 65535, 2]], np.uint16).repeat(8, 0)
    Image.fromarray(depths).save(tmp_path / "depth.png")
    Image.new("RGB", (8, 8)).save(tmp_path / "image.png")
    views = views_of([data.Record(tmp_path / "image.png", tmp_path / "depth.png", "train")], tmp_path, (8, 8))
    assert views.millimetres[0, 0].tolist() == [0, 1, 9999, 10000, 32767, 32767, 32767, 2]
    seen = whole(views, 0)
    assert seen.mask[0, 0, 0].tolist() == [False, False, True, False, False, False, False, True]
    assert seen.targets.isfinite().all()


@pytest.mark.parametrize(("frame", "crop", "shape"), [("crop", CROP, (42, 54)), ("mask", None, SIZE)])
def test_a_batch_to_train_on_is_augmented(root, records, frame, crop, shape):
    views = replace(views_of(records, root), frame=frame, crop=crop, angle=1.0)
    draws = views.draws(torch.Generator().manual_seed(1))
    assert torch.equal(draws, random_draws(len(records), torch.Generator().manual_seed(1), angle=1.0))
    rows = torch.tensor([4, 8])
    seen = views.seen(Picked(rows, [4, 8]), draws[rows])
    plain = whole(views, 4, 8)
    images, depths = augmented(plain.images, plain.targets, draws[rows], frame=frame, size=crop)
    assert torch.equal(seen.images, images) and torch.equal(seen.targets, depths)
    assert seen.images.shape == (2, 3, *shape) and seen.targets.shape == (2, 1, *shape)
    assert torch.equal(seen.mask, (depths > 0.001) & (depths < 10))


def test_features_are_kept_at_the_same_places_where_there_is_a_depth(root, records):
    views = views_of(records[:3], root)
    millimetres = views.millimetres.clone()
    millimetres[1, :, 32:] = 0
    views = replace(views, millimetres=millimetres)
    seen = whole(views, 0, 1, 2)
    features = torch.randn(3, 5, 24, 32)
    own, depths = views.feature_rows(features, seen)
    expected = []
    for k in range(3):
        for i in range(PLACES[0]):
            for j in range(PLACES[1]):
                row, column = int((i + 0.5) * 24 / PLACES[0]), int((j + 0.5) * 32 / PLACES[1])
                depth = seen.targets[k, 0, 2 * row, 2 * column]
                if depth > 0.001:
                    expected.append((features[k, :, row, column], depth))
    assert len(expected) == 24 + 12 + 24 == len(own) and depths.shape == (60, 1)
    for place, (feature, depth) in enumerate(expected):
        assert torch.equal(own[place], feature) and depths[place, 0] == depth


def test_pairs_that_cannot_be_used_are_named(root, records, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(root, folder)
    own = data.records(folder)[0]
    own[1].image.write_bytes(own[1].image.read_bytes()[:200])
    Image.fromarray(np.zeros(SIZE, np.uint16)).save(own[3].depth)
    Image.new("L", SIZE[::-1]).save(own[4].depth)
    for hold in (True, False):
        told = []
        found, kept, problems = load(
            own[:6], folder, SIZE, hold=hold, progress=lambda done, total: told.append((done, total))
        )
        assert kept == [0, 2, 5] and len(found) == 3 and told[-1] == (6, 6)
        named = dict(problems)
        assert named[own[1].image.relative_to(folder).as_posix()] == "truncated"
        assert "no pixel with a depth" in named[own[3].depth.relative_to(folder).as_posix()]
        assert "8 bits, expected 16" in named[own[4].depth.relative_to(folder).as_posix()]
        if hold:
            assert torch.equal(found.pixels, views_of(records, root).pixels[[0, 2, 5]])


def test_pairs_of_the_labelled_mat_are_rounded_to_millimetres(tmp_path):
    h5py = pytest.importorskip("h5py", reason="a .mat of version 7.3 is HDF5")
    metres = np.random.default_rng(0).uniform(0.5, 12, (6, 64, 48)).astype(np.float32)
    metres[1, 3, 5], metres[2] = np.nan, 0
    with h5py.File(tmp_path / data.MAT, "w") as file:
        file["images"], file["rawDepths"] = np.full((6, 3, 64, 48), 9, np.uint8), metres
    own = data.records(tmp_path)[0]
    views, kept, problems = load(own, tmp_path, SIZE, hold=True)
    assert kept == [0, 1, 3, 4, 5]
    assert problems == [(data.MAT, "pair 3: no pixel with a depth between 0.001 and 10 m")]
    expected = 1000 * np.nan_to_num(metres[kept].transpose(0, 2, 1)).astype(np.float64)
    assert np.abs(views.millimetres.numpy() - expected).max() < 0.501
    streamed, _, _ = load(own, tmp_path / data.MAT, SIZE, hold=False)
    image, millimetres = streamed.read(1)
    assert torch.equal(image, views.pixels[1]) and torch.equal(millimetres, views.millimetres[1])


class Unwaiting(Training):
    """Lets no batch but the first of an epoch wait for the GPU."""

    def on_train_batch_start(self, batch, batch_idx):
        if batch_idx:
            torch.cuda.set_sync_debug_mode("error")

    def on_train_batch_end(self, outputs, batch, batch_idx):
        super().on_train_batch_end(outputs, batch, batch_idx)
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.gpu
@pytest.mark.parametrize("method", ["baseline", "oe", "classification"])
def test_no_step_waits_for_the_gpu(root, records, tmp_path, method):
    views = views_of(records, root)
    some = views.take(torch.arange(8))
    options = {"oe": {"stride": 4, "per": "image"}, "classification": {"bins": 9, "low": 0.0, "high": 10.0}}
    own = methods.create(method, **options.get(method, {}))
    outputs = own.outputs(1)
    module = Unwaiting(
        decoder.create("test_resnet", outputs, width=16, upsample=outputs == 1),
        own,
        masked_mse,
        DepthScores(),
        Data(views, some, some),
        LargeTraining(epochs=3, batch_size=10, precision="bf16", schedule="one-cycle", clip=0.1, feature_rows=0),
        seed=0,
        train_metric=QuickRms(),
        callbacks=Callbacks(progress=lambda done, total: None),
    )
    try:
        history = fit(module, device="cuda", folder=tmp_path, monitor="rms")
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert len(history) == 3 and all(math.isfinite(epoch["test"]["rms"]) for epoch in history)

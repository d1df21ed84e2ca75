"""Crops and whole images of any size against loops over their pixels and cells."""

import pytest
import torch

from ordinal_entropy import methods
from ordinal_entropy.models import csrnet
from ordinal_entropy.recipes.groups import LargeTraining
from ordinal_entropy.tasks.crowd.metrics import CountErrors
from ordinal_entropy.tasks.crowd.views import FEATURES, Crowds, sheets
from ordinal_entropy.training.large.fitting import fit
from ordinal_entropy.training.large.module import Callbacks, Training
from ordinal_entropy.vision.split import Data, Picked

SIZES = [(40, 56), (33, 17), (16, 80), (40, 50), (64, 64)]  # of some images in pixels
CROP = 32


def a_set(sizes=SIZES, **options) -> tuple[Crowds, list, list]:
    """Noise, and how it looks image by image."""
    draw = torch.Generator().manual_seed(0)
    images = [torch.randint(0, 256, (*size, 3), generator=draw, dtype=torch.uint8) for size in sizes]
    maps = [torch.rand(-(-h // 8), -(-w // 8), 1, generator=draw) for h, w in sizes]
    people = torch.tensor([float(7 + k) for k in range(len(sizes))], dtype=torch.float64)
    return Crowds(sheets(images), sheets(maps), people, **options), images, maps


def picked(*rows) -> Picked:
    return Picked(torch.tensor(rows), rows)


def by_hand(image, cells, top, left, mirrored, height, width):
    """A frame of ``height`` x ``width`` cells from a first cell on; beyond the image mirrored, and NaN."""
    pixels = torch.zeros(3, 8 * height, 8 * width, dtype=torch.uint8)
    targets = torch.full((1, height, width), torch.nan)
    for source, found, at in ((image, pixels, 8), (cells, targets, 1)):
        for row in range(found.shape[1]):
            for column in range(found.shape[2]):
                y, x = at * top + row, at * left + (found.shape[2] - 1 - column if mirrored else column)
                inside = y < source.shape[0] and x < source.shape[1]
                if inside or at == 8:
                    y, x = (
                        max(2 * size - 1 - k, 0) if k >= size else k
                        for k, size in ((y, len(source)), (x, source.shape[1]))
                    )
                    found[:, row, column] = source[y, x]
    return pixels, targets


def test_crops_are_those_of_the_draws():
    crowds, images, maps = a_set(crop=CROP, mirror=True, repeats=3, above=0.5)
    draws = crowds.draws(torch.Generator().manual_seed(1))
    assert len(crowds) == 15 and draws.shape == (15, 3)
    rows = [14, 3, 6, 0, 12, 7]
    seen = crowds.seen(picked(*rows), draws[torch.tensor(rows)])
    for place, row in enumerate(rows):
        expected = by_hand(images[row % 5], maps[row % 5], *draws[row].tolist(), 4, 4)
        assert torch.equal(seen.images[place], expected[0])
        assert torch.equal(seen.targets[place].isnan(), expected[1].isnan())
        torch.testing.assert_close(seen.targets[place], expected[1], equal_nan=True, rtol=0, atol=0)
        assert torch.equal(seen.mask[place], expected[1] > 0.5)
        assert seen.truth[place].item() == pytest.approx(expected[1].nansum().item())
    assert seen.images.dtype == torch.uint8 and seen.images.is_contiguous(memory_format=torch.channels_last)


def test_draws_reach_every_crop_and_no_further():
    crowds, _, maps = a_set(crop=CROP, mirror=True, repeats=400)
    draws = crowds.draws(torch.Generator().manual_seed(0)).view(400, 5, 3)
    for place, cells in enumerate(maps):
        high, wide = (max(side - CROP // 8, 0) for side in cells.shape[:2])
        assert {tuple(each) for each in draws[:, place, :2].tolist()} == {
            (y, x) for y in range(high + 1) for x in range(wide + 1)
        }
    assert 0.45 < draws[..., 2].float().mean() < 0.55
    plain, _, _ = a_set(crop=CROP)
    assert not plain.draws(torch.Generator())[:, 2].any()
    whole, _, _ = a_set(mirror=True, repeats=40)
    drawn = whole.draws(torch.Generator())
    assert not drawn[:, :2].any() and drawn[:, 2].any()
    again = crowds.draws(torch.Generator().manual_seed(0))
    assert torch.equal(again, draws.flatten(0, 1))


def test_whole_images_are_mirrored_with_their_cells():
    crowds, images, maps = a_set(mirror=True)
    seen = crowds.seen(picked(1), torch.tensor([[0, 0, 1]]))
    pixels, targets = by_hand(images[1], maps[1], 0, 0, True, 5, 3)
    assert torch.equal(seen.images[0], pixels) and torch.equal(seen.targets[0], targets)


def test_whole_images_to_count_in():
    crowds, images, maps = a_set(crop=CROP, repeats=2)
    seen = crowds.seen(picked(0, 3), None)  # as many cells, not as many pixels
    assert seen.images.shape == (2, 3, 40, 56) and seen.targets.shape == (2, 1, 5, 7)
    assert seen.truth.tolist() == [7.0, 10.0]
    for place, row in enumerate((0, 3)):
        assert torch.equal(seen.images[place], by_hand(images[row], maps[row], 0, 0, False, 5, 7)[0])
        assert torch.equal(seen.targets[place, 0], maps[row][..., 0])
    assert torch.equal(seen.images[1, :, :, 50:], seen.images[1, :, :, 44:50].flip(2)) and seen.mask.all()


def test_frames_have_few_sizes():
    crowds, images, maps = a_set(crop=CROP, frame=8)  # of at least 64 x 64 pixels
    assert [batch.tolist() for batch in crowds.batches(4)] == [[0], [1], [3], [4], [2]]
    seen = crowds.seen(picked(0, 1, 3), None)
    assert seen.images.shape == (3, 3, 64, 64) and seen.targets.shape == (3, 1, 8, 8)
    for place, row in enumerate((0, 1, 3)):
        pixels, targets = by_hand(images[row], maps[row], 0, 0, False, 8, 8)
        assert torch.equal(seen.images[place], pixels)
        torch.testing.assert_close(seen.targets[place], targets, equal_nan=True)
    found, _ = crowds.scored(torch.ones(3, 1, 8, 8), seen)
    assert found.tolist() == [maps[row].numel() for row in (0, 1, 3)]
    assert crowds.extent(1) == (40, 24)


def test_counts_are_sums_inside_the_image():
    crowds, _, maps = a_set()
    seen = crowds.seen(picked(1, 4), None)  # in a frame of 8 x 8 cells
    predictions = torch.ones(2, 1, 8, 8)
    found, truth = crowds.scored(predictions, seen)
    assert found.tolist() == [maps[1].numel(), 64.0] == [15.0, 64.0] and truth.tolist() == [8.0, 11.0]
    trained = crowds.seen(picked(1, 4), torch.zeros(2, 3, dtype=torch.long))
    assert crowds.scored(predictions, trained)[1].tolist() == pytest.approx(
        [maps[1].sum().item(), maps[4].sum().item()]
    )


def test_batches_have_every_image_once_and_can_be_stacked():
    sizes = [*SIZES, (40, 51), (39, 56), (33, 18)]
    crowds, _, _ = a_set(sizes, repeats=3)
    found = [batch.tolist() for batch in crowds.batches(2)]
    assert sorted(row for batch in found for row in batch) == list(range(8))
    assert found == [[0, 3], [5, 6], [1, 7], [2], [4]]
    crops, _, _ = a_set(sizes, crop=CROP)
    assert [len(batch) for batch in crops.batches(8)] == [3, 1, 2, 1, 1]  # 8 crops are 3 images of 40 x 56
    assert [len(batch) for batch in crops.batches(1)] == [1] * 8


def test_taken_images_are_those_and_each_is_there_once():
    crowds, images, maps = a_set(repeats=2, crop=CROP)
    some = crowds.take(torch.tensor([8, 3, 2]))
    assert len(some) == 2 and some.people.tolist() == [9.0, 10.0] and some.crop == CROP
    seen = some.seen(picked(1), None)
    assert torch.equal(seen.targets[0, 0], maps[3][..., 0])
    assert torch.equal(seen.images[0, :, :40, :50], images[3].permute(2, 0, 1))


def test_features_are_kept_of_the_same_cells_of_the_mask():
    crowds, _, maps = a_set(above=0.5)
    seen = crowds.seen(picked(2, 4), None)
    features = torch.arange(2 * 3 * 80.0).view(2, 3, 8, 10)
    rows, values = crowds.feature_rows(features, seen)
    inside = [[(y, x) for y in range(8) for x in range(10) if mask[0, y, x]] for mask in seen.mask]
    counts = [min(len(cells), FEATURES) for cells in inside]
    assert len(inside[0]) < FEATURES < len(inside[1]) and rows.shape == (sum(counts), 3)
    chosen = [(0, *cell) for cell in inside[0]]
    chosen += [(1, *inside[1][round(k * (len(inside[1]) - 1) / (FEATURES - 1))]) for k in range(FEATURES)]
    for row, (image, y, x) in enumerate(chosen):
        assert torch.equal(rows[row], features[image, :, y, x])
        assert values[row].item() == maps[(2, 4)[image]][y, x].item()
    nobody, _, _ = a_set(above=2.0)
    assert nobody.feature_rows(features, nobody.seen(picked(2, 4), None))[0].shape == (0, 3)


class Unwaiting(Training):
    """Lets no batch but the first of an epoch wait for the GPU."""

    def on_train_batch_start(self, batch, batch_idx):
        if batch_idx:
            torch.cuda.set_sync_debug_mode("error")

    def on_train_batch_end(self, outputs, batch, batch_idx):
        super().on_train_batch_end(outputs, batch, batch_idx)
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.gpu
@pytest.mark.parametrize("crop", [CROP, 0])
@pytest.mark.parametrize("method", ["baseline", "oe"])
@pytest.mark.parametrize("loss", ["mse", "sum-mse"])
def test_no_step_waits_for_the_gpu(tmp_path, crop, method, loss):
    from ordinal_entropy.tasks.crowd.losses import task_loss

    crowds, _, _ = a_set(crop=crop, mirror=True, repeats=4, above=1e-3)
    data = Data(crowds, *(a_set(crop=crop)[0] for _ in range(2)))
    options = {} if method == "baseline" else {"grouping": 0.1, "stride": 2, "per": "image"}
    settings = LargeTraining(epochs=2, batch_size=4 if crop else 1, clip=1.0, schedule="one-cycle", precision="bf16")
    network = csrnet.create("test_resnet", widths=(8,), batch_norm=True)

    def of_maps(outputs, targets, mask, weight):
        return task_loss(outputs, targets, weight=weight, loss=loss)

    module = Unwaiting(network, methods.create(method, **options), of_maps, CountErrors(), data, settings, seed=5)
    module.callbacks = Callbacks(progress=lambda done, total: None)
    try:
        history = fit(module, device="cuda", folder=tmp_path, monitor="mae")
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert len(history) == 2


@pytest.mark.gpu
def test_a_gpu_shows_what_a_cpu_does():
    crowds, _, _ = a_set(crop=CROP, mirror=True, above=0.5)
    draws = crowds.draws(torch.Generator().manual_seed(2))
    there = crowds.to("cuda")
    rows = torch.arange(5)
    for own, moves in ((draws, draws.cuda()), (None, None)):
        left = crowds.seen(Picked(rows, rows.tolist()), own)
        right = there.seen(Picked(rows.cuda(), rows.tolist()), moves)
        for one, other in zip(left[:3], right[:3], strict=True):
            torch.testing.assert_close(one, other.cpu(), equal_nan=True, rtol=0, atol=0)
        torch.testing.assert_close(left.truth, right.truth.cpu())

"""Images as they come: every kind of pixel, every kind of damage."""

import io
import os
import struct
import threading
import zlib

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("PIL", reason="images are read with Pillow")
from PIL import Image

from ordinal_entropy import files
from ordinal_entropy.vision import images


def encoded(image, form="PNG", **options):
    file = io.BytesIO()
    image.save(file, form, **options)
    return file.getvalue()


def picture(width=24, height=16, mode="RGB"):
    """Smooth, so that a JPEG of it is close; no two corners alike."""
    across, down = np.meshgrid(np.linspace(0, 255, width), np.linspace(0, 255, height))
    return Image.fromarray(np.stack([across, down, 255 - across], -1).astype(np.uint8)).convert(mode)


@pytest.fixture
def file(tmp_path):
    return tmp_path / "face.jpg"


def reason(path, **options):
    with pytest.raises(images.ImageError) as caught:
        images.read(path, **options)
    assert str(path) in str(caught.value) and caught.value.reason in str(caught.value)
    return caught.value.reason


@pytest.mark.parametrize("form", ["PNG", "BMP", "GIF", "WEBP", "JPEG"])
def test_every_format_gives_red_green_blue(file, form):
    file.write_bytes(encoded(picture(), form, **({"lossless": True} if form == "WEBP" else {"quality": 95})))
    found = images.read(file)
    assert found.shape == (16, 24, 3) and found.dtype == np.uint8 and found.flags.writeable
    close = {"JPEG": 20, "GIF": 30}.get(form, 0)
    assert np.abs(found.astype(int) - np.asarray(picture()).astype(int)).max() <= close


@pytest.mark.parametrize("mode", ["1", "L", "P", "CMYK"])
def test_other_pixels_are_converted(file, mode):
    image = picture(mode=mode)
    file.write_bytes(encoded(image, "JPEG" if mode == "CMYK" else "PNG", quality=95))
    found, wanted = images.read(file).astype(int), np.asarray(image.convert("RGB")).astype(int)
    assert found.shape == (16, 24, 3)
    assert np.abs(found - wanted).mean() <= (8 if mode == "CMYK" else 0)


def test_sixteen_bits_of_grey_become_eight(file):
    grey = np.array([[0, 257, 257 * 128, 65535]], dtype=np.uint16)
    file.write_bytes(encoded(Image.fromarray(grey)))
    assert images.read(file).tolist() == [[[0] * 3, [1] * 3, [128] * 3, [255] * 3]]


def test_what_is_transparent_is_white(file):
    file.write_bytes(encoded(Image.new("RGBA", (2, 2), (200, 0, 0, 0))))
    assert (images.read(file) == 255).all()
    file.write_bytes(encoded(Image.new("LA", (2, 2), (0, 128))))
    assert np.abs(images.read(file).astype(int) - 127).max() <= 1
    file.write_bytes(encoded(Image.new("RGB", (2, 2), (1, 2, 3)), transparency=(1, 2, 3)))
    assert (images.read(file) == 255).all()
    palette = Image.new("P", (2, 1))
    palette.putpalette([10, 20, 30, 40, 50, 60])
    palette.putdata([0, 1])
    file.write_bytes(encoded(palette, transparency=b"\xff\x00"))  # Pillow warns of these
    assert images.read(file).tolist() == [[[10, 20, 30], [255, 255, 255]]]


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("form", ["JPEG", "PNG"])
def test_a_turned_photo_is_upright(file, orientation, form):
    from PIL import ImageOps

    exif = Image.Exif()
    exif[0x0112] = orientation
    data = encoded(picture(), form, exif=exif)
    file.write_bytes(data)
    wanted = np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(data))))  # Pillow's own way
    assert np.array_equal(images.read(file), wanted)
    assert images.read(file).shape == ((24, 16, 3) if orientation >= 5 else (16, 24, 3))


@pytest.mark.parametrize("orientation", [0, 9, 65535])
def test_senseless_turns_are_left_alone(file, orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    file.write_bytes(encoded(picture(), "JPEG", exif=exif))
    assert images.read(file).shape == (16, 24, 3)


def test_damaged_exif_does_no_harm(file):
    file.write_bytes(encoded(picture(), "JPEG", exif=b"Exif\x00\x00II*\x00\x08\x00\x00\x00\xff\xff\x12\x01\x03\x00"))
    assert images.read(file).shape == (16, 24, 3)


def test_missing_empty_and_foreign_files(tmp_path, file):
    assert reason(tmp_path / "no.jpg") == "missing"
    assert reason(tmp_path) == "a folder"
    file.write_bytes(b"")
    assert reason(file) == "empty"
    for content in (b"<html>404</html>", b"x", bytes(100), b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n"):
        file.write_bytes(content)
        assert reason(file) == "not an image (JPEG, PNG, BMP, GIF, WEBP)"
    link = tmp_path / "loop.jpg"
    link.symlink_to(link)
    assert reason(link) == "a link to itself"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.jpg")
    assert reason(tmp_path / "pipe.jpg") == "a pipe"


@pytest.mark.skipif(hasattr(os, "geteuid") and os.geteuid() == 0, reason="root may read everything")
def test_a_file_one_may_not_read(file):
    file.write_bytes(encoded(picture()))
    file.chmod(0)
    assert reason(file).startswith("not readable: ")


@pytest.mark.parametrize(("form", "options"), [("JPEG", {}), ("JPEG", {"progressive": True}), ("PNG", {}), ("GIF", {})])
def test_a_truncated_image_is_refused_wherever_it_ends(file, form, options):
    noise = np.random.default_rng(0).integers(0, 256, (40, 50, 3), dtype=np.uint8)
    whole = encoded(Image.fromarray(noise), form, **options)
    for share in (0.02, 0.1, 0.3, 0.5, 0.7, 0.9, 0.98):
        file.write_bytes(whole[: int(len(whole) * share)])
        assert "truncated" in reason(file) or "damaged" in reason(file)


def test_garbage_inside_a_png_is_damage(file):
    whole = bytearray(encoded(picture(200, 200)))
    middle = len(whole) // 2
    whole[middle : middle + 8] = b"\xff" * 8
    file.write_bytes(whole)
    assert reason(file).startswith("damaged") or reason(file) == "truncated"


def png_that_claims(width, height):
    """A few bytes that would unpack to that many pixels."""

    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(100))) + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize("side", [8_000, 10_000, 60_000])  # above ours, above Pillow's warning, above its error
def test_an_oversized_image_is_refused_before_it_is_decoded(file, side):
    file.write_bytes(png_that_claims(side, side))
    assert reason(file).startswith("larger than 50,000,000 pixels")


def test_the_limit_is_what_one_says(file):
    file.write_bytes(encoded(picture()))
    assert images.read(file, max_pixels=24 * 16).shape == (16, 24, 3)
    assert reason(file, max_pixels=24 * 16 - 1) == "larger than 383 pixels: 24 x 16"


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(form=st.sampled_from(["JPEG", "PNG", "GIF", "BMP", "WEBP"]), data=st.data())
def test_whatever_the_bytes_pixels_or_a_reason(tmp_path, form, data):
    exif = Image.Exif()
    exif[0x0112] = 6
    whole = bytearray(encoded(picture(9, 7), form, **({} if form in ("GIF", "BMP") else {"exif": exif})))
    for _ in range(data.draw(st.integers(1, 6))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    file = tmp_path / "face.jpg"
    file.write_bytes(whole)
    try:
        assert images.read(file, max_pixels=1000).shape[2] == 3
    except images.ImageError as error:
        assert error.reason.isprintable()


def test_unreadable_names_the_bad_ones_in_order(tmp_path):
    places = [tmp_path / f"{k}.png" for k in range(20)]
    for k, place in enumerate(places):
        place.write_bytes(encoded(picture()) if k % 7 else png_that_claims(10_000, 10_000))
    told = []
    found = images.unreadable(places, tmp_path, progress=lambda done, total: told.append((done, total)))
    assert [problem.file for problem in found] == ["0.png", "7.png", "14.png"]
    assert told == [(k, 20) for k in range(1, 21)]


def test_a_stop_does_not_wait_for_all_files(tmp_path, monkeypatch):
    read, gate = [], threading.Event()

    def slowly(path, **_):
        read.append(path)
        gate.wait(0.01)

    def stop(done, total):
        raise KeyboardInterrupt

    monkeypatch.setattr(images, "read", slowly)
    with pytest.raises(KeyboardInterrupt):
        images.unreadable([tmp_path / f"{k}.png" for k in range(2000)], tmp_path, progress=stop)
    assert len(read) < 100


@pytest.mark.parametrize(
    ("named", "wrong"),
    [
        ("a/face.jpg", None),
        ("a/./face.jpg", None),
        ("a/inner.jpg", None),  # a link that stays inside
        ("", "path is empty"),
        ("/etc/passwd", "path is absolute"),
        ("C:\\face.jpg", "path is absolute"),
        ("../outside.jpg", "path has .. in it"),
        ("a/../a/face.jpg", "path has .. in it"),
        ("a/out.jpg", "a link leads out of the folder"),
        ("away/outside.jpg", "a link leads out of the folder"),
        ("beside/outside.jpg", "a link leads out of the folder"),
        ("a/dangling.jpg", "missing"),
        ("a/other.jpg", "missing"),
        ("a" * 5000, "missing"),
        ("a", "a folder"),
        ("a/\0.jpg", "not a path"),
    ],
)
def test_names_that_lists_may_hold(tmp_path, named, wrong):
    root = tmp_path / "root"
    (root / "a").mkdir(parents=True)
    (tmp_path / "root-2").mkdir()  # begins with the name of the folder, and is another
    for place in (tmp_path / "outside.jpg", tmp_path / "root-2" / "outside.jpg", root / "a" / "face.jpg"):
        place.write_text("")
    (root / "away").symlink_to(tmp_path)
    (root / "beside").symlink_to(tmp_path / "root-2")
    (root / "a" / "out.jpg").symlink_to(tmp_path / "outside.jpg")
    (root / "a" / "inner.jpg").symlink_to("face.jpg")
    (root / "a" / "dangling.jpg").symlink_to("nothing.jpg")
    assert files.fault_inside(root, named) == wrong


def test_a_folder_may_itself_be_reached_by_a_link(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "face.jpg").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert files.fault_inside(tmp_path / "link", "face.jpg") is None

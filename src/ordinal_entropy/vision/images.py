"""Image files, distrusted: an array of whole pixels, or an error that says in a phrase what is wrong."""

import os
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ordinal_entropy import files
from ordinal_entropy.files import FileError, Problem, on_all_cores, shown

if TYPE_CHECKING:
    from PIL.Image import Image

Pixels = NDArray[np.uint8]  # (h, w, 3)

MAX_PIXELS = 50_000_000  # of one image: more than a camera has, less than would fill the memory
FORMATS = ("JPEG", "PNG", "BMP", "GIF", "WEBP")  # no others are tried: each decoder is a door
_BEGINNINGS = (b"\xff\xd8", b"\x89PNG", b"BM", b"GIF8", b"RIFF")  # of files in these formats
_ORIENTATION = 0x0112  # EXIF's number of it
_WARNINGS = threading.Lock()  # Python's filters of warnings are one for all threads


class ImageError(FileError):
    """A file that is not an image to be read."""

    expected = "an image"


def read(path: str | os.PathLike[str], *, max_pixels: int = MAX_PIXELS) -> Pixels:
    """The image in a file as red, green and blue, ``(h, w, 3)``, upright and decoded to the last row.

    Grey, palette and CMYK images are converted, 16 bits become 8, what is transparent is laid on white, and a turn
    that the camera noted (EXIF) is carried out. Of an animation the first picture.

    Args:
        path: a file in one of ``FORMATS``, whatever its name ends in.
        max_pixels: an image with more is refused before it is decoded.

    Raises:
        ImageError: missing, empty, truncated, too large, or not an image; its ``reason`` says which.

    Example:
        >>> read("no such face.jpg")
        Traceback (most recent call last):
        ordinal_entropy.vision.images.ImageError: expected an image in no such face.jpg, got: missing
    """
    from PIL import Image, UnidentifiedImageError

    wrong = files.fault(path)
    if wrong is not None:
        raise ImageError(path, wrong)
    try:
        if not files.size(path):
            raise ImageError(path, "empty")
        with open(path, "rb") as file:
            beginning = file.read(4)
            try:
                with _quiet():
                    image: Image.Image = Image.open(file, formats=_available())
                    width, height = image.size
                if width * height > max_pixels:
                    raise ImageError(path, f"larger than {max_pixels:,} pixels: {width:,} x {height:,}")
                image.load()
                with _quiet():
                    turn = _turn(image)
                image = _rgb(image)
                return np.array(image if turn is None else image.transpose(turn))
            except ImageError:
                raise
            except Image.DecompressionBombError:
                raise ImageError(path, f"larger than {max_pixels:,} pixels") from None
            except UnidentifiedImageError:
                known = beginning.startswith(_BEGINNINGS)
                raise ImageError(
                    path, "truncated or damaged at its beginning" if known else f"not an image ({', '.join(FORMATS)})"
                ) from None
            except Exception as error:  # decoders raise all kinds of errors on damaged files
                said = str(error) or type(error).__name__
                reason = "truncated" if "truncated" in said.lower() else f"damaged: {shown(said, 80)}"
                raise ImageError(path, reason) from error
    except OSError as error:
        raise ImageError(path, f"not readable: {error.strerror or error}") from error


def resized(pixels: Pixels, size: tuple[int, int]) -> Pixels:
    """The image brought to a height and a width, whatever its proportions; bilinear.

    Example:
        >>> resized(np.zeros((4, 6, 3), np.uint8), (2, 2)).shape
        (2, 2, 3)
    """
    if pixels.shape[:2] == size:
        return pixels
    from PIL import Image

    return np.array(Image.fromarray(pixels).resize((size[1], size[0]), Image.Resampling.BILINEAR))


def unreadable(
    paths: Sequence[Path],
    folder: Path,
    *,
    max_pixels: int = MAX_PIXELS,
    progress: Callable[[int, int], None] | None = None,
) -> list[Problem]:
    """Reads every image, on all cores; those that cannot be read, with the reason, in the order given.

    Args:
        paths: images below the folder.
        folder: what their names are told relative to.
        max_pixels: as in :func:`read`.
        progress: is told how many are done, and how many there are.
    """

    def reason(path: Path) -> str | None:
        try:
            read(path, max_pixels=max_pixels)
        except ImageError as error:
            return error.reason
        return None

    faults = zip(paths, on_all_cores(reason, paths, progress), strict=True)
    return [Problem(shown(path.relative_to(folder).as_posix()), wrong) for path, wrong in faults if wrong is not None]


def _available() -> list[str]:
    from PIL import Image

    Image.preinit()
    if not set(FORMATS) <= set(Image.OPEN):
        Image.init()
    return [name for name in FORMATS if name in Image.OPEN]


@contextmanager
def _quiet() -> Iterator[None]:
    """Without Pillow's warnings, of large images and odd EXIF: what matters of them is an error here."""
    with _WARNINGS, warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"PIL\.")
        yield


def _rgb(image: "Image") -> "Image":
    from PIL import Image

    if image.mode.startswith("I"):  # 16 bits of grey
        array: NDArray[Any] = np.asarray(image)
        image = Image.fromarray((np.clip(array, 0, 65535) // 257).astype(np.uint8))
    if image.mode in ("LA", "PA", "RGBA") or "transparency" in image.info:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return image.convert("RGB")


def _turn(image: "Image") -> Any:
    """What brings the image upright; None where it is, or where nothing sensible is noted."""
    from PIL.Image import Transpose

    try:
        orientation = image.getexif().get(_ORIENTATION)
    except Exception:  # damaged EXIF does no harm to the pixels
        return None
    turns = {
        2: Transpose.FLIP_LEFT_RIGHT,
        3: Transpose.ROTATE_180,
        4: Transpose.FLIP_TOP_BOTTOM,
        5: Transpose.TRANSPOSE,
        6: Transpose.ROTATE_270,
        7: Transpose.TRANSVERSE,
        8: Transpose.ROTATE_90,
    }
    return turns.get(orientation) if isinstance(orientation, int) else None

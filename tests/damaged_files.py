"""The commands over damaged files: every kind of file that they read, damaged by a seeded generator.

    python tests/damaged_files.py --cases 2000

A whole dataset or run folder of each kind is written once; then, case by case, one file of a copy is damaged and a
command is run over it, in a process that is forked from this one, which has imported everything. A case fails if the
command is killed, prints a traceback, ends with a status that it should not have, takes more than 10 seconds or more
than 2 GiB, or complains in words that do not say what is wrong, or of what.
"""

import argparse
import contextlib
import gc
import io
import itertools
import json
import os
import random
import resource
import shlex
import shutil
import signal
import socket
import struct
import sys
import tempfile
import time
import traceback
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")  # a process with threads cannot be forked

import numpy as np  # noqa: E402

SECONDS = 10  # of a processor, for one command
BLOCKED = 12  # seconds of the clock: a command that waits for something; more than above, for machines with other work
MEMORY = 2 * 2**30  # bytes that a command may hold
ADDRESSES = 24 * 2**30  # bytes that it may ask for: a mistake shall not bring the machine down

Write = Callable[[Path], None]


class Kind(NamedTuple):
    """Files of one kind."""

    name: str
    folder: str  # the key in WHOLE of a folder with such a file
    file: str  # in that folder
    commands: tuple[
        str, ...
    ]  # with {file}, {root} (the copy with the damaged file), {whole} (all whole folders), {out}
    crafted: tuple[str, ...] = ()  # keys in CRAFTED
    text: bool = False


class Case(NamedTuple):
    """What was done to a file, which command ran, and how that went."""

    kind: str
    damage: str
    command: str
    status: int
    seconds: float
    memory: int
    said: str
    wrong: str  # "" where all is well


_TABULAR = "--set target=price --set epochs=1 --set batch_size=8 --set hidden=8 --set feature_rows=16 --device cpu"
_IMAGES = "--set epochs=1 --set batch_size=4 --set feature_rows=4 --set generated=0 --device cpu"
_AGE = f"train age --preset quick --set image_size=32 --set padding=1 {_IMAGES}"
_CROWD = f"train crowd --preset quick {_IMAGES}"
_DEPTH = f"train depth --preset quick {_IMAGES}"
_LINEAR = (
    "--preset quick --set data={whole}/operators --set rows=20 --set steps=4 --set evaluate_every=2 --set hidden=8 "
    "--device cpu"
)
_OPERATORS = "train linear " + _LINEAR.replace("{whole}/operators", "{root}") + " --out {out}"
_WEIGHTS = _AGE + " --set data={whole}/age --set pretrained={file} --out {out}"
_RUN = "train tabular --preset quick --set data={whole}/csv/houses.csv " + _TABULAR + " --out {root}"
_RUN_ON_IMAGES = _AGE + " --set data={whole}/age --out {root}"
_EVALUATE = "evaluate {root} --device cpu"
_REPORT = "report {root}"
_COMPARE = "compare linear --methods baseline,oe --seeds 3 " + _LINEAR + " --out {root}"


def _of_table(ending: str) -> tuple[str, ...]:
    target = _TABULAR.replace("--set target=price ", "") if ending == "npz" else _TABULAR
    train = f"train tabular --preset quick --set data={{file}} {target} --out {{out}}"
    return "data check tabular {file}", "data check tabular {root}", train


def _of_images(train: str) -> tuple[str, ...]:
    task = train.split()[1]
    check = f"data check {task} {{root}}"
    return check, check, check, f"{train} --set data={{root}} --out {{out}}"


_DIAGNOSE = ("diagnose {file} --out {out}",)
_NPZ = ("npz: claims a shape", "npz: zeros", "npz: objects", "npz: another packing")
_IMAGE = ("png: claims a size", "png: large", "png: grey")

KINDS = (
    Kind("operators .npz", "operators", "train.npz", (_OPERATORS,), _NPZ),
    Kind("table .csv", "csv", "houses.csv", _of_table("csv"), ("csv: many columns", "csv: another"), text=True),
    Kind("table .tsv", "tsv", "houses.tsv", _of_table("tsv"), ("csv: many columns", "csv: another"), text=True),
    Kind("table .npz", "npz", "houses.npz", _of_table("npz"), _NPZ),
    Kind(
        "table .parquet",
        "parquet",
        "houses.parquet",
        _of_table("parquet"),
        ("parquet: many equal rows", "parquet: many columns", "parquet: nested"),
    ),
    Kind("ages .csv", "age", "agedb.csv", _of_images(_AGE), ("csv: many columns", "csv: another"), text=True),
    Kind("faces", "age", "AgeDB/3.jpg", _of_images(_AGE), _IMAGE),
    Kind("heads .mat", "crowd", "train_data/ground-truth/GT_IMG_2.mat", _of_images(_CROWD), ("mat: zeros",)),
    Kind("crowds", "crowd", "train_data/images/IMG_2.jpg", _of_images(_CROWD), _IMAGE),
    Kind("pairs, list", "depth", "nyudepthv2_train_files_with_gt.txt", _of_images(_DEPTH), text=True),
    Kind("pairs, image", "depth", "rgb_00001.jpg", _of_images(_DEPTH), _IMAGE),
    Kind("pairs, depth", "depth", "sync_depth_00001.png", _of_images(_DEPTH), _IMAGE),
    Kind(
        "pairs, HDF5",
        "labeled",
        "nyu_depth_v2_labeled.mat",
        _of_images(_DEPTH),
        ("hdf5: nothing stored", "hdf5: a large chunk", "hdf5: many scenes", "hdf5: zeros", "hdf5: many pairs"),
    ),
    Kind("pairs, packed HDF5", "packed", "nyu_depth_v2_labeled.mat", _of_images(_DEPTH)),
    Kind("pairs, splits.mat", "labeled", "splits.mat", _of_images(_DEPTH), ("mat: zeros", "mat: many numbers")),
    Kind(
        "weights .pth", "weights", "weights.pth", (_WEIGHTS,), ("pth: meta", "pth: sparse", "pth: zeros", "pth: text")
    ),
    Kind("weights .pth, old", "weights", "old.pth", (_WEIGHTS,)),
    Kind("weights .safetensors", "weights", "weights.safetensors", (_WEIGHTS,), ("safetensors: claims a shape",)),
    Kind("features .npz", "features", "features.npz", _DIAGNOSE, (_NPZ[0], *_NPZ[2:])),  # zeros are read in blocks
    Kind(
        "features .npy",
        "features",
        "features.npy",
        ("diagnose {file} --targets {root}/targets.npy --out {out}",),
        ("npy",),
    ),
    Kind("features .safetensors", "features", "features.safetensors", _DIAGNOSE, ("safetensors: claims a shape",)),
    Kind("settings .yaml", "settings", "mine.yaml", ("train age --config {file} --keys",), text=True),
    # run folders
    Kind("run, checkpoint.pt", "stopped", "oe-seed0/checkpoint.pt", (_RUN, _EVALUATE), ("pth: zeros",)),
    Kind("run, result.json", "run", "result.json", (_RUN, _EVALUATE, _REPORT), text=True),
    Kind("run, inner result.json", "half", "oe-seed0/result.json", (_RUN, _EVALUATE, _REPORT), text=True),
    Kind("run, recipe.json", "run", "recipe.json", (_RUN, _EVALUATE, _REPORT), text=True),
    Kind("run, inner recipe.json", "stopped", "oe-seed0/recipe.json", (_RUN, _EVALUATE, _REPORT), text=True),
    Kind("run, metrics.jsonl", "stopped", "metrics.jsonl", (_RUN, _REPORT), text=True),
    Kind("run, features", "run", "oe-seed0/features/test-0001.safetensors", (_REPORT,)),
    Kind("run on images, last.ckpt", "stopped-on-images", "oe-seed0/last.ckpt", (_EVALUATE, _RUN_ON_IMAGES)),
    Kind("run on images, best.ckpt", "stopped-on-images", "oe-seed0/best.ckpt", (_EVALUATE, _RUN_ON_IMAGES)),
    Kind("study, summary.json", "study", "summary.json", (_REPORT, _COMPARE), text=True),
    Kind("study, curves.json", "study", "curves.json", (_REPORT, _COMPARE), text=True),
    Kind("study, study.json", "study", "study.json", (_REPORT, _COMPARE), text=True),
    Kind(
        "study, checkpoint.pt",
        "stopped-study",
        "training/stack-0d50df0cd377/checkpoint.pt",
        (_COMPARE,),
        ("pth: zeros",),
    ),
)


def _pixels(k: int, height: int = 48, width: int = 64) -> Any:
    coarse = np.random.default_rng(k).integers(0, 256, (height // 8, width // 8, 3)).astype(np.uint8)
    return coarse.repeat(8, axis=0).repeat(8, axis=1)


def _save_image(path: Path, pixels: Any) -> None:
    from PIL import Image

    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


def _operators(root: Path) -> None:
    rows = np.random.default_rng(0)
    for part, n in (("train", 40), ("test", 30)):
        arrays = {f"X_{part}0": rows.normal(size=(n, 10)), f"X_{part}1": rows.random((n, 1))}
        np.savez(root / f"{part}.npz", **arrays, **{f"y_{part}": rows.normal(size=(n, 1))})


def _houses(count: int = 80) -> dict[str, list[Any]]:
    lot = random.Random(0)
    return {
        "area": [lot.uniform(30, 200) for _ in range(count)],
        "rooms": [lot.randint(1, 7) for _ in range(count)],
        "town": [lot.choice(["Bonn", "Jena", "Kiel"]) for _ in range(count)],
        "price": [lot.uniform(100, 900) for _ in range(count)],
    }


def _separated(name: str, sign: str) -> Write:
    def write(root: Path) -> None:
        columns = _houses()
        lines = [columns, *zip(*columns.values(), strict=True)]
        (root / name).write_text("".join(sign.join(map(str, line)) + "\n" for line in lines))

    return write


def _npz(root: Path) -> None:
    columns = _houses()
    x = np.array([columns["area"], columns["rooms"]]).T
    tests = {f"test_{k}": np.arange(k, 80, 5) for k in range(3)}
    np.savez_compressed(root / "houses.npz", X=x, y=np.array(columns["price"]), n_splits=3, **tests)


def _parquet(root: Path) -> None:
    import pandas

    pandas.DataFrame(_houses()).to_parquet(root / "houses.parquet")


def _age(root: Path) -> None:
    lines = ["age,path,split"]
    for k in range(16):
        _save_image(root / f"AgeDB/{k}.jpg", _pixels(k))
        lines.append(f"{20 + 3 * k},AgeDB/{k}.jpg,{'train' if k < 8 else 'val' if k < 12 else 'test'}")
    (root / "agedb.csv").write_text("\n".join(lines) + "\n")


def _crowd(root: Path) -> None:
    from scipy.io import savemat

    for folder, count in (("train_data", 6), ("test_data", 2)):
        for k in range(1, count + 1):
            _save_image(root / folder / f"images/IMG_{k}.jpg", _pixels(k, 96, 96))
            (root / folder / "ground-truth").mkdir(exist_ok=True)
            points = np.random.default_rng(k).uniform(1, 90, (12, 2))
            info = np.empty((1, 1), object)
            info[0, 0] = {"location": points, "number": np.array([[12.0]])}
            place = root / folder / f"ground-truth/GT_IMG_{k}.mat"
            savemat(place, {"image_info": info}, do_compression=bool(k % 2))


def _depth(root: Path) -> None:
    for part, numbers in (("train", range(6)), ("test", range(6, 8))):
        for k in numbers:
            _save_image(root / f"rgb_{k:05d}.jpg", _pixels(k))
            metres = np.random.default_rng(k).uniform(0.5, 9, (48, 64))
            _save_image(root / f"sync_depth_{k:05d}.png", (1000 * metres).astype(np.uint16))
        lines = [f"rgb_{k:05d}.jpg sync_depth_{k:05d}.png 518.8579\n" for k in numbers]
        (root / f"nyudepthv2_{part}_files_with_gt.txt").write_text("".join(lines))


def _labeled(packed: bool) -> Write:
    def write(root: Path) -> None:
        import h5py
        from scipy.io import savemat

        n = 8
        pixels = np.stack([_pixels(k) for k in range(n)]).transpose(0, 3, 2, 1)  # (n, 3, w, h), as MATLAB has it
        metres = np.random.default_rng(0).uniform(0.5, 9, (n, 64, 48)).astype(np.float32)
        how = {"chunks": True, "compression": "gzip", "shuffle": True} if packed else {}
        with h5py.File(root / "nyu_depth_v2_labeled.mat", "w", userblock_size=512) as file:
            file.create_dataset("images", data=pixels, **how)
            file.create_dataset("rawDepths", data=metres, **how)
            cells = file.create_dataset("scenes", (1, n), dtype=h5py.ref_dtype)
            for k in range(n):
                file[f"#refs#/{k}"] = np.array([[ord(letter)] for letter in f"office_000{k}"], np.uint16)
                cells[0, k] = file[f"#refs#/{k}"].ref
        order = np.arange(1, n + 1, dtype=np.uint16)[:, None]
        savemat(root / "splits.mat", {"trainNdxs": order[:6], "testNdxs": order[6:]}, do_compression=packed)

    return write


def _weights(root: Path) -> None:
    import safetensors.torch
    import timm
    import torch

    weights = timm.create_model("test_resnet", pretrained=False).state_dict()
    torch.save(weights, root / "weights.pth")
    torch.save(weights, root / "old.pth", _use_new_zipfile_serialization=False)
    safetensors.torch.save_file(weights, root / "weights.safetensors")


def _features(root: Path) -> None:
    import safetensors.numpy

    lot = np.random.default_rng(0)
    arrays = {"features": lot.normal(size=(60, 5)).astype(np.float32), "targets": lot.normal(size=60)}
    np.savez_compressed(root / "features.npz", **arrays)
    for name, array in arrays.items():
        np.save(root / f"{name}.npy", array)
    safetensors.numpy.save_file(arrays, root / "features.safetensors")


def _settings(root: Path) -> None:
    groups = "data: {path: faces, train_rows: 20}\ntraining:\n  learning_rate: 3e-3 # of Adam\n  milestones: [3, 5]\n"
    (root / "mine.yaml").write_text(f"{groups}backbone: 'resnet18'\nmethod:\n  strength: 5\n  oe: {{memory: ~}}\n")


def _made(command: str, *removed: str) -> Write:
    """What a command writes, without some of it: as if it had been stopped."""

    def write(root: Path) -> None:
        _call(_filled(command, root=root, whole=root.parent, file=root, out=root))
        for pattern in removed:
            for path in root.glob(pattern):
                path.unlink()

    return write


WHOLE: dict[str, Write] = {
    "operators": _operators,
    "csv": _separated("houses.csv", ","),
    "tsv": _separated("houses.tsv", "\t"),
    "npz": _npz,
    "parquet": _parquet,
    "age": _age,
    "crowd": _crowd,
    "depth": _depth,
    "labeled": _labeled(packed=False),
    "packed": _labeled(packed=True),
    "weights": _weights,
    "features": _features,
    "settings": _settings,
    "run": _made(_RUN),
    "half": _made(_RUN, "result.json"),
    "stopped": _made(_RUN, "result.json", "oe-seed0/result.json"),
    "stopped-on-images": _made(_RUN_ON_IMAGES, "result.json", "oe-seed0/result.json"),
    "study": _made(_COMPARE),
    "stopped-study": _made(_COMPARE, "summary.json", "curves.json", "report.html", "training/*/result.json"),
}


# Files that are as they should be but for one thing, which a generator of random damage would not hit upon.


def _zeros(size: int) -> tuple[bytes, int]:
    """Deflated zeros and their checksum, without ever holding them."""
    piece, packer = bytes(1 << 24), zlib.compressobj(9, zlib.DEFLATED, -15)
    first = packer.compress(piece) + packer.flush(zlib.Z_FULL_FLUSH)
    count, check = size // len(piece), 0
    for _ in range(count):
        check = zlib.crc32(piece, check)
    return first * count + packer.flush(), check


def _rewritten(path: Path, change: Callable[[str, bytes], bytes], packing: int = zipfile.ZIP_DEFLATED) -> None:
    """A zip archive with the content of every member changed, checksums right."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", packing) as archive:
        for name, content in members.items():
            archive.writestr(name, change(name, content))


def _header(shape: tuple[int, ...], kind: str = "<f8") -> bytes:
    text = repr({"descr": kind, "fortran_order": False, "shape": shape}).encode()
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


def _npz_claims(path: Path) -> None:
    _rewritten(path, lambda _, content: _header((10**6, 10**6)) + content[128:])


def _with_zeros(path: Path, start: Callable[[int], bytes], size: int = 3 * 2**30) -> None:
    """A zip archive with its largest member grown to gigabytes of zeros, which are small when packed."""
    with zipfile.ZipFile(path) as archive:
        largest = max(archive.infolist(), key=lambda entry: entry.file_size).filename
        members = {name: archive.read(name) for name in archive.namelist() if name != largest}
    packed, _ = _zeros(size)
    begin = start(size)
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    data = packer.compress(begin) + packer.flush(zlib.Z_FULL_FLUSH) + packed
    check, piece = zlib.crc32(begin), bytes(1 << 24)
    for _ in range(size // len(piece)):
        check = zlib.crc32(piece, check)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
        entry = zipfile.ZipInfo(largest)
        entry.compress_type, entry.CRC = zipfile.ZIP_DEFLATED, check
        entry.compress_size, entry.file_size = len(data), len(begin) + size
        entry.header_offset = archive.fp.tell()
        archive.fp.write(entry.FileHeader(zip64=False) + data)
        archive.start_dir = archive.fp.tell()
        archive.filelist.append(entry)
        archive.NameToInfo[largest] = entry
        archive._didModify = True


def _npz_objects(path: Path) -> None:
    with np.load(path) as file:
        arrays = {name: np.array([{1: 2}] * 3, object) for name in file}
    np.savez(path, allow_pickle=True, **arrays)


def _csv_columns(path: Path) -> None:
    names = ",".join(f"c{k}" for k in range(20_000))
    path.write_text(f"{names}\n{names.replace('c', '')}\n")


def _png(width: int, height: int, rows: bytes, kind: bytes = b"\x08\x02") -> bytes:
    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    header = struct.pack(">II", width, height) + kind + b"\0\0\0"
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def _parquet_rows(path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {name: pa.array(np.zeros(10**7)) for name in ("area", "price")}
    with pq.ParquetWriter(path, pa.table(columns).schema, compression="zstd") as writer:
        for _ in range(12):
            writer.write_table(pa.table(columns))


def _parquet_columns(path: Path) -> None:
    import pandas

    pandas.DataFrame({f"c{k}": [1.0, 2.0] for k in range(3000)} | {"price": [1.0, 2.0]}).to_parquet(path)


def _parquet_nested(path: Path) -> None:
    import pandas

    pandas.DataFrame({"area": [[1.0, [2.0][0]]] * 20, "town": [{"a": 1}] * 20, "price": range(20)}).to_parquet(path)


def _hdf5(**datasets: Callable[[Any, str], None]) -> Write:
    def write(path: Path) -> None:
        import h5py

        with h5py.File(path, "r+") as file:
            for name, make in datasets.items():
                del file[name]
                make(file, name)

    return write


def _claimed(shape: tuple[int, ...], kind: Any, **how: Any) -> Callable[[Any, str], None]:
    return lambda file, name: file.create_dataset(name, shape, kind, **how)


def _hdf5_zeros(path: Path) -> None:
    import h5py

    with h5py.File(path, "r+") as file:
        for name, shape, kind in (("images", (8, 3, 7000, 7000), "u1"), ("rawDepths", (8, 7000, 7000), "f4")):
            del file[name]
            place = file.create_dataset(name, shape, kind, chunks=(1, *shape[1:]), compression="gzip")
            place[0] = np.zeros(shape[1:], kind)


def _hdf5_scenes(path: Path) -> None:
    import h5py

    with h5py.File(path, "r+") as file:
        del file["scenes"]
        file.create_dataset("scenes", (1, 10**9), dtype=h5py.ref_dtype, chunks=(1, 1000))


def _mat_numbers(path: Path) -> None:
    from scipy.io import savemat

    savemat(path, {"trainNdxs": np.ones((1000, 1000)), "testNdxs": np.ones((1, 10**6))}, do_compression=True)


def _mat_zeros(path: Path) -> None:
    """One variable of gigabytes, packed."""
    packer, piece = zlib.compressobj(9), bytes(1 << 24)
    size = 2**31 - 2**24
    data = packer.compress(struct.pack("<II", 14, size)) + b"".join(packer.compress(piece) for _ in range(size >> 24))
    data += packer.flush()
    path.write_bytes(b"MATLAB 5.0".ljust(124) + b"\x00\x01IM" + struct.pack("<II", 15, len(data)) + data)


def _pth(change: Callable[[Any], Any]) -> Write:
    def write(path: Path) -> None:
        import torch

        weights = torch.load(path, weights_only=True)
        torch.save({name: change(value) for name, value in weights.items()}, path)

    return write


def _safetensors_claims(path: Path) -> None:
    content = path.read_bytes()
    length = struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8 : 8 + length])
    name = next(name for name in header if name != "__metadata__")
    header[name]["shape"] = [10**9, 10**9]
    header[name]["data_offsets"] = [0, 4 * 10**18]
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + content[8 + length :])


CRAFTED: dict[str, Write] = {
    "npz: claims a shape": _npz_claims,
    "npz: zeros": lambda path: _with_zeros(path, lambda size: _header((size // 80, 10))),
    "npz: objects": _npz_objects,
    "npz: another packing": lambda path: _rewritten(path, lambda _, content: content, zipfile.ZIP_LZMA),
    "npy": lambda path: path.write_bytes(_header((10**9, 10**9)) + bytes(100)),
    "csv: many columns": _csv_columns,
    "csv: another": lambda path: path.write_text('"a\n' * 1000),
    "png: claims a size": lambda path: path.write_bytes(_png(10**5, 10**5, zlib.compress(bytes(100)))),
    "png: large": lambda path: path.write_bytes(_png(7000, 7000, zlib.compress(bytes(21_001 * 7000), 1))),
    "png: grey": lambda path: path.write_bytes(_png(7000, 7000, zlib.compress(bytes(14_001 * 7000), 1), b"\x10\x00")),
    "parquet: many equal rows": _parquet_rows,
    "parquet: many columns": _parquet_columns,
    "parquet: nested": _parquet_nested,
    "hdf5: nothing stored": _hdf5(images=_claimed((8, 3, 7000, 7000), "u1"), rawDepths=_claimed((8, 7000, 7000), "f8")),
    "hdf5: many pairs": _hdf5(
        images=_claimed((10**9, 3, 64, 48), "u1", chunks=(1, 3, 64, 48)),
        rawDepths=_claimed((10**9, 64, 48), "f4", chunks=(1, 64, 48)),
    ),
    "hdf5: a large chunk": _hdf5(
        images=_claimed((10**5, 3, 64, 48), "u1", chunks=(10**5, 3, 64, 48), compression="gzip"),
        rawDepths=_claimed((10**5, 64, 48), "f4", chunks=(10**5, 64, 48), compression="gzip"),
    ),
    "hdf5: many scenes": _hdf5_scenes,
    "hdf5: zeros": _hdf5_zeros,
    "mat: zeros": _mat_zeros,
    "mat: many numbers": _mat_numbers,
    "pth: meta": _pth(lambda tensor: tensor.to("meta")),
    "pth: sparse": _pth(lambda tensor: tensor.to_sparse()),
    "pth: text": _pth(str),
    "pth: zeros": lambda path: _with_zeros(path, lambda _: b""),
    "safetensors: claims a shape": _safetensors_claims,
}


# Any file.

_HUGE = [
    struct.pack(kind, number)
    for kind, number in (
        ("<I", 2**31 - 1), (">I", 2**31 - 1), ("<I", 2**32 - 1), ("<I", 2**30), (">I", 10**9), ("<Q", 2**40),
        (">Q", 2**40), ("<Q", 2**63 - 1), ("<Q", 2**64 - 1), ("<H", 2**16 - 1),
    )
]  # fmt: skip
_TEXTS = (
    b"", b"\xff\xfe\xfa", b"\xef\xbb\xbf", b"null", b"[]", b"{}", b"3", b'"text"', b"NaN", b"[" * 100_000,
    b'{"a":' * 50_000,     b"{\"recipe\": 3}", b"\0" * 1000, b"1e999", b"[1, 2", b"," * 1000, b"\n" * 1000, b'"',
    "\u2028\ud7ff".encode(), b"9" * 5000,
)  # fmt: skip


def _piece(size: int, lot: random.Random) -> tuple[int, int]:
    start = lot.randrange(size)
    return start, min(size, start + lot.choice([1, 4, 16, 100, 1000, 10_000]))


def _truncated(content: bytes, lot: random.Random) -> bytes:
    return content[: lot.randrange(len(content))]


def _flipped(content: bytes, lot: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(lot.choice([1, 1, 2, 4, 16, 64])):
        changed[lot.randrange(len(changed))] ^= 1 << lot.randrange(8)
    return bytes(changed)


def _inserted(content: bytes, lot: random.Random) -> bytes:
    start, _ = _piece(len(content), lot)
    return content[:start] + lot.randbytes(lot.choice([1, 3, 8, 512])) + content[start:]


def _removed(content: bytes, lot: random.Random) -> bytes:
    start, stop = _piece(len(content), lot)
    return content[:start] + content[stop:]


def _run_of(sign: bytes) -> Callable[[bytes, random.Random], bytes]:
    def change(content: bytes, lot: random.Random) -> bytes:
        start, stop = _piece(len(content), lot)
        return content[:start] + sign * (stop - start) + content[stop:]

    return change


def _swapped(content: bytes, lot: random.Random) -> bytes:
    first, second = sorted(lot.randrange(len(content)) for _ in range(2))
    size = min(lot.choice([4, 64, 512]), second - first)
    changed = bytearray(content)
    changed[first : first + size], changed[second : second + size] = (
        content[second : second + size],
        content[first : first + size],
    )
    return bytes(changed[: len(content)])


def _with_a_number(content: bytes, lot: random.Random) -> bytes:
    """A huge number, mostly near the beginning or the end, where headers are."""
    most = len(content)
    start = lot.choice([lot.randrange(most), lot.randrange(min(most, 300)), most - 1 - lot.randrange(min(most, 600))])
    number = lot.choice(_HUGE)
    return content[:start] + number + content[start + len(number) :]


def _text_number(content: bytes, lot: random.Random) -> bytes:
    """One of the numbers or words of a text replaced."""
    import re

    places = list(re.finditer(rb"[\w.]+", content))
    if not places:
        return content + b"?"
    place = lot.choice(places)
    new = lot.choice(
        [b"nan", b"-1", b"1e400", b"9" * 400, b"null", b"[]", b"{}", b'"', b"\xff", b"\0", b"true", b"../..", b""]
    )
    return content[: place.start()] + new + content[place.end() :]


_DAMAGES: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "truncated": _truncated,
    "bits flipped": _flipped,
    "bytes inserted": _inserted,
    "bytes removed": _removed,
    "zeros": _run_of(b"\0"),
    "ones": _run_of(b"\xff"),
    "blocks swapped": _swapped,
    "a huge number": _with_a_number,
}


def _socket(path: Path) -> None:
    with contextlib.chdir(path.parent) if hasattr(contextlib, "chdir") else contextlib.nullcontext():
        socket.socket(socket.AF_UNIX).bind(path.name)


def _link_to_a_pipe(path: Path) -> None:
    os.mkfifo(path.with_name("pipe"))
    path.symlink_to("pipe")


SPECIAL: dict[str, Write] = {
    "a pipe": os.mkfifo,
    "a link to /dev/zero": lambda path: path.symlink_to("/dev/zero"),
    "a link to a pipe": _link_to_a_pipe,
    "a folder": Path.mkdir,
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a link to nothing": lambda path: path.symlink_to("nothing there"),
    "missing": lambda path: None,
    "a socket": _socket,
    "empty": Path.touch,
    "a file without end": lambda path: os.truncate(os.open(path, os.O_CREAT | os.O_WRONLY), 2**42),
}


def _replaced(path: Path, make: Write) -> None:
    path.unlink()
    make(path)


def special_damages(kind: Kind, whole: Path, lot: random.Random) -> list[tuple[str, Write]]:
    """Names of damages, and what does each of them to a file: those that a random one would not hit upon."""
    found: list[tuple[str, Write]] = []
    for name, make in SPECIAL.items():
        found.append((name, lambda path, make=make: _replaced(path, make)))
    there = [other for other in KINDS if other.file != kind.file and (whole / other.folder).is_dir()]
    others = sorted({(other.folder, other.file) for other in there})
    for folder, file in lot.sample(others, min(len(others), 6)):
        content = (whole / folder / file).read_bytes()
        found.append((f"{folder}/{file} in its place", lambda path, content=content: path.write_bytes(content)))
    for text in _TEXTS if kind.text else ():
        found.append((f"{text[:20]!r}", lambda path, text=text: path.write_bytes(text)))
    return found


def random_damages(kind: Kind, whole: Path, lot: random.Random) -> Iterator[tuple[str, Write]]:
    """The same, drawn by lot, without end."""
    content = (whole / kind.folder / kind.file).read_bytes()
    possible = [*_DAMAGES.items(), *([("a word", _text_number)] * 4 if kind.text else [])]
    while True:
        name, change = lot.choice(possible)
        changed = change(content, lot)
        for _ in range(lot.choice([0, 0, 0, 1, 2])):
            changed = change(changed, lot) if changed else changed
        yield name, lambda path, changed=changed: path.write_bytes(changed)


# Running commands.


def _filled(command: str, **places: Path) -> list[str]:
    return [part.format(**places) for part in shlex.split(command)]


def _call(arguments: Sequence[str]) -> int:
    """The status that the command line ends with."""
    from ordinal_entropy.commands import main

    sys.argv = ["ordinal-entropy", *arguments]
    try:
        main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


class Ended(NamedTuple):
    status: int  # negative: the signal that killed it
    seconds: float  # of a processor
    memory: int  # bytes
    blocked: bool
    said: str


def forked(job: Callable[[], int], said: Path, limit: float = BLOCKED) -> Ended:
    """How a job ends that runs in a process of its own, its words in a file."""
    sys.stdout.flush()
    sys.stderr.flush()
    process = os.fork()
    if not process:
        status = 99
        try:
            os.setsid()
            file = os.open(said, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(file, 1)
            os.dup2(file, 2)
            resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            status = job()
        except BaseException:
            traceback.print_exc()
            status = 98
        finally:
            with contextlib.suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(status)
    begin, blocked = time.monotonic(), False
    while True:
        done, code, used = os.wait4(process, os.WNOHANG)
        if done:
            break
        if not blocked and time.monotonic() - begin > limit:
            blocked = True
            os.killpg(process, signal.SIGKILL)
        time.sleep(0.002)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process, signal.SIGKILL)  # what it left behind
    words = said.read_bytes().decode(errors="replace")
    return Ended(os.waitstatus_to_exitcode(code), used.ru_utime + used.ru_stime, used.ru_maxrss * 1024, blocked, words)


def _wrong(ended: Ended, command: str, file: Path, root: Path) -> str:
    """What a command should not have done; "" if all is well."""
    if ended.blocked or ended.seconds > SECONDS:
        return f"hangs: {ended.seconds:.0f} s of a processor"
    if ended.status < 0:
        return f"killed by {signal.Signals(-ended.status).name}"
    if "Traceback (most" in ended.said:
        return "traceback"
    if ended.memory > MEMORY:
        return f"{ended.memory / 2**30:.1f} GiB"
    if ended.status not in ((0, 1, 2) if command.startswith("data check") else (0, 2)):
        return f"status {ended.status}"
    if ended.status == 2:
        last = ended.said.strip().split("\n")[-1]
        if not last.startswith("ordinal-entropy: ") or last.endswith(":"):
            return "no sentence"
        if command.startswith("train") and not any(each in last for each in (file.name, str(root))):
            return "does not name the file"
    return ""


def run(count: int, kinds: Sequence[Kind] = KINDS, seed: int = 0, few: bool = False) -> Iterator[Case]:
    """Damages files and runs commands over them.

    Args:
        count: of cases at least; each kind has its part. Every special damage meets every command of its kind, random
            ones meet the commands in turn.
        kinds: of files.
        seed: of the damages.
        few: not more cases than that, of the first command of each kind, and of the special damages only some.
    """
    _import_everything(kinds)
    with tempfile.TemporaryDirectory(prefix="damaged-") as folder:
        whole, words = Path(folder) / "whole", Path(folder) / "words"
        os.environ["ORDINAL_ENTROPY_CACHE"] = str(Path(folder) / "cache")
        for name in _needed(kinds):
            (whole / name).mkdir(parents=True)
            made = forked(lambda name=name: _done(WHOLE[name], whole / name), words, 300)
            if made.status:
                raise RuntimeError(f"expected a whole folder {name}, got:\n{made.said}")
        for place, kind in enumerate(kinds):
            lot = random.Random(f"{seed} {kind.name}")
            commands = list(dict.fromkeys(kind.commands))[: 1 if few else None]
            share = count * (place + 1) // len(kinds) - count * place // len(kinds)
            case = partial(_case, kind, folder=folder, whole=whole, words=words)
            for command in () if few else commands:
                found = case(("nothing", lambda path: None), command)
                if found.status or found.wrong:
                    raise RuntimeError(f"expected {found.command} to end well, got:\n{found.wrong} {found.said}")
            special = special_damages(kind, whole, lot)
            if few:
                special = lot.sample(special, share // 2)
            else:
                special += [(name, CRAFTED[name]) for name in kind.crafted]
            for damage, command in itertools.product(special, commands):
                yield case(damage, command)
            left = max(share - len(special) * len(commands), 0 if few else share // 2)
            turns = itertools.cycle(commands if few else kind.commands)
            for damage, command in itertools.islice(zip(random_damages(kind, whole, lot), turns, strict=False), left):
                yield case(damage, command)


def _needed(kinds: Sequence[Kind]) -> list[str]:
    """The whole folders that cases are made of, those first that others are made of."""
    if any(kind.folder.startswith(("run", "half", "stopped", "study")) for kind in kinds):
        return list(WHOLE)
    return [name for name in WHOLE if name in {kind.folder for kind in kinds} | {"age"}]


def _done(write: Write, path: Path) -> int:
    write(path)
    return 0


def _case(kind: Kind, damage: tuple[str, Write], command: str, *, folder: str, whole: Path, words: Path) -> Case:
    name, write = damage
    root, out = Path(folder) / kind.folder, Path(folder) / "out"
    for path in (root, out):
        shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(whole / kind.folder, root)
    file = root / kind.file
    if name in CRAFTED:  # which may take threads, memory and time
        made = forked(lambda: _done(write, file), words, 300)
        if made.status:
            raise RuntimeError(f"expected {name} of {kind.name} to be made, got:\n{made.said}")
    else:
        write(file)
    arguments = _filled(command, root=root, file=file, whole=whole, out=out)
    ended = forked(lambda: _call(arguments), words)
    told = " ".join(arguments).replace(folder, "...")
    wrong = _wrong(ended, command, file, root)
    return Case(kind.name, name, told, ended.status, ended.seconds, ended.memory, ended.said, wrong)


_IMPORTS = (
    "h5py",
    "pandas",
    "PIL.Image",
    "pyarrow.parquet",
    "safetensors.numpy",
    "safetensors.torch",
    "scipy.io",
    "yaml",
)
_IMPORTS_OF_RUNS = ("jinja2", "plotly.graph_objects", "scipy.stats", "sklearn.manifold", "ordinal_entropy.report")


def _import_everything(kinds: Sequence[Kind]) -> None:
    """What the commands import when they need it, so that no fork has to; leaves this process without threads."""
    import torch

    from ordinal_entropy import tasks

    torch.set_num_threads(1)
    trained = any(kind.name.startswith(("weights", "run", "study")) for kind in kinds)
    if trained:
        from ordinal_entropy.models import backbones
        from ordinal_entropy.training.large import fitting  # noqa: F401

        backbones._timm()
    for name in (*_IMPORTS, *(_IMPORTS_OF_RUNS if trained else ())):
        import_module(name)
    for name in tasks.names():
        tasks.load(name)
    with contextlib.redirect_stderr(io.StringIO()):
        _call(["data", "check", "tabular", "nowhere.csv"])  # what the command line imports when it is first called
    gc.freeze()  # a fork would copy what its garbage collection touches


def main() -> int:
    """Runs cases and prints a table; 1 if any failed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--kinds", nargs="*", default=(), help="parts of their names")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--few", action="store_true", help="no more cases than asked for")
    parser.add_argument("--data", action="store_true", help="datasets and features only, no weights and no run folders")
    parser.add_argument("--verbose", action="store_true", help="print what every command said")
    given = parser.parse_args()
    kinds = [kind for kind in KINDS if not given.kinds or any(part in kind.name for part in given.kinds)]
    if given.data:
        kinds = [kind for kind in kinds if not kind.name.startswith(("weights", "run", "study"))]
    count, failed, slowest, largest = 0, 0, 0.0, 0
    for name, cases in itertools.groupby(run(given.cases, kinds, given.seed, given.few), lambda case: case.kind):
        own = list(map(partial(_told, verbose=given.verbose), cases))
        wrong = sum(bool(case.wrong) for case in own)
        print(f"{name:28} {len(own):5} cases {wrong:4} failures", flush=True)
        count, failed = count + len(own), failed + wrong
        slowest = max(slowest, *(case.seconds for case in own))
        largest = max(largest, *(case.memory for case in own))
    most = f"at most {slowest:.1f} s of a processor, {largest / 2**20:.0f} MiB"
    print(f"{count} cases, {failed} failures; {most}")
    return int(bool(failed))


def _told(case: Case, verbose: bool) -> Case:
    """The same, printed if it failed."""
    if case.wrong or verbose:
        said = case.said.strip()[-1500 if case.wrong else -300 :]
        print(f"--- {case.kind}, {case.damage}: {case.wrong or case.status}\n{case.command}\n{said}", flush=True)
    return case


if __name__ == "__main__":
    sys.exit(main())

"""Files of features: whatever NumPy and safetensors write is read back in blocks; nothing is ever unpickled."""

import os
import pickle
import zipfile

import numpy as np
import pytest
import torch

from ordinal_entropy import feature_files


def whole(rows, count):
    blocks = list(rows.blocks(count))
    assert all(len(block) == count for block in blocks[:-1])
    return torch.cat(blocks)


FEATURES = np.arange(35.0).reshape(7, 5) - 3
TARGETS = np.arange(7) * 2


@pytest.mark.parametrize("count", [1, 3, 7, 100])
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz_is_read_in_blocks(tmp_path, save, count):
    save(tmp_path / "run.npz", features=FEATURES, targets=TARGETS, other="not looked at")
    features, targets = feature_files.read(tmp_path / "run.npz")
    assert (features.shape, targets.shape) == ((7, 5), (7,))
    assert whole(features, count).tolist() == FEATURES.tolist()
    assert whole(targets, count).tolist() == TARGETS.tolist()
    assert whole(targets, count).tolist() == TARGETS.tolist(), "a second walk begins anew"


@pytest.mark.parametrize("kind", ["f2", "f4", "f8", ">f4", ">i2", "i8", "u1", "u4", "?", "g"])
def test_every_kind_of_number(tmp_path, kind):
    content = (np.arange(12).reshape(6, 2) % 7).astype(kind)
    np.save(tmp_path / "z.npy", content)
    np.save(tmp_path / "y.npy", TARGETS[:6])
    features, _ = feature_files.read(tmp_path / "z.npy", tmp_path / "y.npy")
    assert whole(features, 4).double().tolist() == content.astype(float).tolist()
    assert whole(features, 4).dtype == {"f2": torch.float16, "f4": torch.float32, ">f4": torch.float32}.get(
        kind, torch.float64
    )


def test_columns_first(tmp_path):
    np.savez(tmp_path / "run.npz", features=np.asfortranarray(FEATURES), targets=TARGETS)
    features, _ = feature_files.read(tmp_path / "run.npz")
    assert whole(features, 2).tolist() == FEATURES.tolist()


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16, torch.float64, torch.int32])
def test_safetensors(tmp_path, kind):
    save_file = pytest.importorskip("safetensors.torch", reason="one of the formats is safetensors").save_file
    content = {"features": torch.tensor(FEATURES).to(kind), "targets": torch.tensor(TARGETS)}
    save_file(content, tmp_path / "run.safetensors")
    features, targets = feature_files.read(tmp_path / "run.safetensors")
    assert (features.shape, targets.shape) == ((7, 5), (7,))
    assert whole(features, 3).double().tolist() == content["features"].tolist()
    assert whole(targets, 3).tolist() == TARGETS.tolist()


def test_arrays_and_tensors_of_any_kind():
    for values in (
        FEATURES,
        FEATURES[:, ::-1],
        np.broadcast_to(FEATURES[0], (7, 5)),
        torch.tensor(FEATURES, requires_grad=True),
        torch.tensor(FEATURES).bfloat16(),
    ):
        read = whole(feature_files.stream(values, "features"), 2)
        assert not read.requires_grad
        assert read.double().tolist() == torch.as_tensor(np.array(values.tolist())).tolist()
    rows = feature_files.stream(FEATURES, "features")
    assert feature_files.stream(rows, "features") is rows


class Trap:
    """Leaves a file where it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_objects_are_never_unpickled(tmp_path):
    trap = tmp_path / "sprung"
    objects = np.array([[Trap(trap)]] * 9, dtype=object)
    np.savez(tmp_path / "run.npz", features=objects, targets=np.arange(9))
    np.save(tmp_path / "z.npy", objects, allow_pickle=True)
    np.save(tmp_path / "y.npy", np.arange(9))
    (tmp_path / "p.npy").write_bytes(pickle.dumps(Trap(trap)))
    with pytest.raises(ValueError, match=r"expected numbers in features of .*run.npz, got Python objects, which"):
        feature_files.read(tmp_path / "run.npz")
    with pytest.raises(ValueError, match=r"expected numbers in .*z.npy, got Python objects"):
        feature_files.read(tmp_path / "z.npy", tmp_path / "y.npy")
    with pytest.raises(ValueError, match=r"expected .*p.npy in NumPy's format"):
        feature_files.read(tmp_path / "p.npy", tmp_path / "y.npy")
    with pytest.raises(ValueError, match="got Python objects"):
        feature_files.stream(objects, "features")
    assert not trap.exists()


def save(folder, name, **arrays):
    np.savez(folder / name, **arrays)
    return folder / name


def truncated(folder):
    path = save(folder, "short.npz", features=np.random.default_rng(0).random((500, 8)), targets=np.arange(500))
    path.write_bytes(path.read_bytes()[:9000])
    return path


def lying(folder):
    """Its header promises more than there is."""
    np.save(folder / "full.npy", np.zeros((4, 2)))
    content = (folder / "full.npy").read_bytes().replace(b"(4, 2), }     ", b"(4000000, 2),}")
    with zipfile.ZipFile(folder / "lies.npz", "w") as archive:
        archive.writestr("features.npy", content)
        archive.writestr("targets.npy", (folder / "full.npy").read_bytes())
    return folder / "lies.npz"


def written(folder, name, content):
    (folder / name).write_bytes(content)
    return folder / name


WRONG = {
    "no targets": (lambda f: save(f, "a.npz", features=FEATURES, y=TARGETS), "got no targets: only 'features', 'y'"),
    "nothing": (lambda f: save(f, "a.npz"), "got no features and no targets: nothing"),
    "words": (lambda f: save(f, "a.npz", features=np.array([["a"]]), targets=TARGETS), "real numbers in features of"),
    "complex": (lambda f: save(f, "a.npz", features=FEATURES * 1j, targets=TARGETS), "got complex128"),
    "no zip": (lambda f: written(f, "a.npz", b"junk"), "a.npz, which is damaged"),
    "half a zip": (truncated, "short.npz, which is damaged"),
    "a lie": (lying, "expected 64,000,128 bytes in features of .*, as its header says, got 192"),
    "no safetensors": (lambda f: written(f, "a.safetensors", b"junk"), "a.safetensors, which is damaged"),
    "another kind": (lambda f: written(f, "a.pt", b"junk"), r"ends in .npz, .npy, .safetensors, got .*a.pt"),
    "no second file": (lambda f: written(f, "a.npy", b"junk"), "expected the targets of .*a.npy in a second .npy file"),
    "not there": (lambda f: f / "a.npz", "expected a file in .*a.npz, got no such file"),
    "a folder": (lambda f: (f / "b.npz").mkdir() or f / "b.npz", "expected a file in .*b.npz, got a folder"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_said(tmp_path, what):
    make, sentence = WRONG[what]
    if "safetensors" in what:
        pytest.importorskip("safetensors", reason="one of the formats is safetensors")
    with pytest.raises((ValueError, OSError), match=sentence):
        feature_files.read(make(tmp_path))


def test_targets_go_with_npy_files_only(tmp_path):
    path = save(tmp_path, "a.npz", features=FEATURES, targets=TARGETS)
    with pytest.raises(ValueError, match=r"expected targets inside .*a.npz"):
        feature_files.read(path, path)
    np.save(tmp_path / "z.npy", FEATURES)
    with pytest.raises(ValueError, match=r"in an .npy file, got .*a.npz"):
        feature_files.read(tmp_path / "z.npy", path)


def test_damage_in_the_midst_is_found_while_reading(tmp_path):
    path = tmp_path / "run.npz"
    np.savez_compressed(path, features=np.random.default_rng(0).random((2000, 8)), targets=np.arange(2000))
    content = bytearray(path.read_bytes())
    content[40_000] ^= 255
    path.write_bytes(content)
    features, _ = feature_files.read(path)
    with pytest.raises(ValueError, match="damaged"):
        whole(features, 100)


@pytest.mark.parametrize("values", [[[1.0]], "features", None])
def test_neither_array_nor_tensor(values):
    with pytest.raises(TypeError, match=r"expected features as a torch.Tensor or a NumPy array"):
        feature_files.stream(values, "features")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
@pytest.mark.parametrize("ending", [".npz", ".npy", ".safetensors"])
def test_pipes_are_not_waited_for_and_devices_not_read(tmp_path, ending):
    for name, make, kind in (("p", os.mkfifo, "a pipe"), ("z", lambda path: path.symlink_to("/dev/zero"), "a device")):
        path = tmp_path / f"{name}{ending}"
        make(path)
        with pytest.raises(OSError, match=rf"expected a file in .*{name}{ending}, got {kind}"):
            feature_files.read(path, path if ending == ".npy" else None)

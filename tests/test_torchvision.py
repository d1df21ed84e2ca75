"""torchvision is imported wherever it can be, and its operators are declared only where that is what fails."""

import subprocess
import sys
import textwrap

import pytest
import torch

from ordinal_entropy.environment import import_torchvision, torchvision_problem

MESSAGE = "operator torchvision::nms does not exist"


@pytest.fixture
def fake_torchvision(tmp_path, monkeypatch):
    """Puts a torchvision of one line in front of the installed one."""

    def put(code):
        (tmp_path / "torchvision").mkdir()
        (tmp_path / "torchvision" / "__init__.py").write_text(code)
        monkeypatch.syspath_prepend(tmp_path)

    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        monkeypatch.delitem(sys.modules, name)
    declared = []
    monkeypatch.setattr(torch.library, "define", lambda name, schema: declared.append(name))
    put.declared = declared
    yield put
    sys.modules.pop("torchvision", None)


def test_an_import_that_works_is_left_alone(fake_torchvision):
    fake_torchvision("loaded = 'fake'")
    import_torchvision()
    first = sys.modules["torchvision"]
    import_torchvision()
    assert first.loaded == "fake"
    assert sys.modules["torchvision"] is first
    assert fake_torchvision.declared == []


def test_another_failure_is_passed_on(fake_torchvision):
    fake_torchvision("raise RuntimeError('the disk is full')")
    with pytest.raises(RuntimeError, match="the disk is full"):
        import_torchvision()
    assert fake_torchvision.declared == []


def test_a_module_that_torchvision_lacks_is_named(fake_torchvision):
    fake_torchvision("import no_such_module")
    with pytest.raises(ModuleNotFoundError) as caught:
        import_torchvision()
    assert caught.value.name == "no_such_module"


def test_without_torchvision_a_sentence_says_what_brings_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchvision", None)
    with pytest.raises(
        ModuleNotFoundError, match=r"need torchvision, .* pip install 'ordinal-entropy\[train\]'"
    ) as caught:
        import_torchvision()
    assert caught.value.name == "torchvision"


def in_a_new_process(script, *path):
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(script), *map(str, path)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)


def test_missing_operators_are_declared_once(tmp_path):
    (tmp_path / "torchvision").mkdir()
    (tmp_path / "torchvision" / "half.py").write_text("")
    (tmp_path / "torchvision" / "__init__.py").write_text(
        "import torch, torchvision.half\n"
        "for name in ('nms', 'qnms'):\n"
        "    if not hasattr(torch.ops.torchvision, name):\n"
        f"        raise RuntimeError({MESSAGE!r})\n"
        "if hasattr(torch, 'still_broken'):\n"
        f"    raise RuntimeError({MESSAGE!r})\n"
    )
    script = f"""
        import sys, torch
        sys.path.insert(0, sys.argv[1])
        from ordinal_entropy.environment import import_torchvision
        torch.still_broken = True
        for _ in range(2):  # declares, still fails; declares nothing twice
            try:
                import_torchvision()
            except RuntimeError as error:
                assert str(error) == {MESSAGE!r}, error
            else:
                raise AssertionError
        del torch.still_broken
        import_torchvision()
        first = sys.modules["torchvision"]
        import_torchvision()
        assert sys.modules["torchvision"] is first
        try:
            torch.ops.torchvision.nms(torch.zeros(1, 4), torch.zeros(1), 0.5)
        except NotImplementedError:
            print("declared, not defined")
    """
    answer = in_a_new_process(script, tmp_path)
    assert answer.stdout.strip() == "declared, not defined", answer.stderr


@pytest.mark.slow
def test_timm_can_be_imported():
    answer = in_a_new_process("""
        from ordinal_entropy.environment import import_torchvision
        import_torchvision()
        import timm, torchvision.transforms
        print("done")
    """)
    assert answer.stdout.strip() == "done", answer.stderr


def test_what_keeps_torchvision_from_being_imported_is_told(fake_torchvision, monkeypatch):
    monkeypatch.setattr("ordinal_entropy.environment._declared", [])
    fake_torchvision("raise ImportError('libjpeg.so:\\n no such file')")
    assert torchvision_problem() == "ImportError: libjpeg.so: no such file"


def test_a_torchvision_that_imports_has_no_problem(fake_torchvision, monkeypatch):
    monkeypatch.setattr("ordinal_entropy.environment._declared", [])
    fake_torchvision("")
    assert torchvision_problem() is None
    monkeypatch.setitem(sys.modules, "torchvision", None)  # not installed
    assert torchvision_problem() is None


def test_operators_that_are_missing_are_told_though_the_tasks_do_without(monkeypatch):
    monkeypatch.setattr("ordinal_entropy.environment._declared", ["nms"])
    assert torchvision_problem().startswith(MESSAGE)

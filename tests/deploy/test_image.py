"""The image, as far as it can be told without building it."""

from __future__ import annotations

import ctypes
import importlib.util
import marshal
import shutil
import sys
import sysconfig
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
STAGE = DOCKERFILE.rpartition("\nFROM ")[2]


@pytest.fixture(scope="module")
def assemble() -> ModuleType:
    spec = importlib.util.spec_from_file_location("assemble", ROOT / "deploy" / "image" / "assemble.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def pinned(name: str) -> dict[str, str]:
    """Package -> version of a lock file."""
    lines = (ROOT / name).read_text().splitlines()
    return dict(line.split(" ")[0].split("==", 1) for line in lines if line[:1].isalnum())


def test_the_last_stage_has_nothing_but_what_was_collected() -> None:
    assert STAGE.startswith("scratch\n")
    assert "RUN" not in STAGE.split()
    assert "USER 65532:65532\n" in STAGE
    assert 'ENTRYPOINT ["/usr/local/bin/ckptguard"]\n' in STAGE
    instructions = [line.split()[0] for line in DOCKERFILE.splitlines() if line[:1].isalpha()]
    assert "HEALTHCHECK" not in instructions
    for label in ("title", "description", "licenses", "version", "revision", "base.name"):
        assert f"org.opencontainers.image.{label}=" in STAGE


def test_only_what_is_copied_is_sent() -> None:
    lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line[:1] not in ("", "#")]
    assert lines[0] == "*"
    sent = {line[1:] for line in lines if line.startswith("!")}
    copied = {
        name.removeprefix("./")
        for line in DOCKERFILE.splitlines()
        if line.startswith("COPY ") and "--from" not in line
        for name in line.split()[1:-1]
    }
    assert sent == copied
    for name in sent:
        assert (ROOT / name).exists()


def test_what_is_installed_is_what_is_tested() -> None:
    image, everything = pinned("requirements-serve.lock"), pinned("requirements.lock")
    assert image.items() <= everything.items()
    for name in ("fastapi", "uvicorn", "kubernetes", "cryptography", "tree-sitter", "msgspec"):
        assert name in image
    assert not {"pytest", "mypy", "ruff", "hypothesis"} & set(image)


def test_a_stripped_library_still_loads(assemble: ModuleType, tmp_path: Path) -> None:
    import orjson

    if sys.platform != "linux":
        pytest.skip("ELF is Linux's")
    source = Path(orjson.__file__).parent
    library = next(source.glob("*.so"))
    copied = tmp_path / library.name
    shutil.copy(library, copied)
    assemble.strip(copied)
    assert copied.stat().st_size <= library.stat().st_size
    ctypes.PyDLL(str(copied))
    assemble.strip(copied)  # twice does no harm
    ctypes.PyDLL(str(copied))
    text = tmp_path / "text"
    text.write_text("no program")
    assemble.strip(text)
    assert text.read_text() == "no program"


def test_a_packed_package_is_imported_from(assemble: ModuleType, tmp_path: Path) -> None:
    package = tmp_path / "lots"
    (package / "inner").mkdir(parents=True)
    (package / "__init__.py").write_text("from lots.inner import answer\n")
    (package / "inner" / "__init__.py").write_text("answer = 42\n")
    (package / "inner" / "some_test.py").write_text("")
    assemble.compile_all(tmp_path)
    assemble.pack(package)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lots.pth", "lots.zip"]
    with zipfile.ZipFile(tmp_path / "lots.zip") as archive:
        assert archive.namelist() == ["lots/__init__.pyc", "lots/inner/__init__.pyc"]
        code = archive.read("lots/__init__.pyc")
        assert code[4:8] == b"\x01\0\0\0"  # by hash, and not compared
        # Tracebacks name the place in the image, not where it was put together.
        assert marshal.loads(code[16:]).co_filename == "/lots/__init__.py"
    sys.path.insert(0, str(tmp_path / "lots.zip"))
    try:
        assert importlib.import_module("lots").answer == 42
    finally:
        sys.path.pop(0)
        for name in ("lots", "lots.inner"):
            sys.modules.pop(name, None)


def test_nothing_that_is_left_out_is_used(assemble: ModuleType) -> None:
    """Patterns name things of the standard library, so that a typing error leaves out nothing by chance."""
    standard = Path(sysconfig.get_path("stdlib"))
    for name in ("test", "idlelib", "tkinter", "ensurepip"):
        assert name in assemble.UNUSED
    for name in ("asyncio", "ssl.py", "json", "email", "multiprocessing", "encodings", "unittest"):
        assert name not in assemble.UNUSED
        assert (standard / name).exists()

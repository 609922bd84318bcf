"""Collects the file system of the image: Python, the libraries that are used, and what these need of the system.

Runs while the image is built, in its first stage: `assemble.py DEPENDENCIES APPLICATION` fills the two folders, each of
which becomes a layer. The first changes with the lock file, the second with every commit. Only the standard library.
"""

import compileall
import os
import py_compile
import shutil
import struct
import subprocess
import sys
import sysconfig
import time
import zipfile
from pathlib import Path

PREFIX = Path(sys.base_prefix)
STDLIB = Path(sysconfig.get_path("stdlib"))
SITE = Path(sysconfig.get_path("purelib"))
OWN = ("webhook", "certs")
# Generated code, some thousand modules of which few are ever used: 115 MB as files, a tenth of that as an archive.
PACKED = ("kubernetes",)
MOMENT = int(os.environ.get("SOURCE_DATE_EPOCH") or 0)
USER = 65532

# Of the standard library: what needs a screen, a compiler or a network of its own, and other tests.
UNUSED = {
    *("test", "idlelib", "tkinter", "turtledemo", "turtle.py", "ensurepip", "lib2to3", "pydoc_data", "venv"),
    *("distutils", "msilib", "site-packages", "__pycache__", "sqlite3", "dbm", "curses", "config-3*"),
    *("_sqlite3*", "_tkinter*", "_curses*", "_dbm*", "_gdbm*", "_test*", "_xxtest*", "xxlimited*", "readline*"),
    *("_ctypes_test*", "nis.*", "ossaudiodev*"),
}  # fmt: skip
# Of libraries: their own tests, type stubs, headers and sources, and what installs others.
UNUSED_IN_SITE = {
    *("pip", "pip-*", "setuptools*", "wheel*", "__pycache__", "*.pyi", "*.pyx", "*.pxd", "*.pxi", "*.c", "*.h"),
    *("tests", "test", "bin", "_testbase.py"),
}
# What the metadata of a package is read for when it runs; licences stay.
UNUSED_METADATA = {"RECORD", "INSTALLER", "REQUESTED", "WHEEL", "direct_url.json"}


def main(dependencies: Path, application: Path) -> None:
    """Fills both folders."""
    copy(STDLIB, under(dependencies, STDLIB), UNUSED)
    copy(SITE, under(dependencies, SITE), UNUSED_IN_SITE | set(OWN) | {"checkpoint_guard-*"})
    copy_file(Path(sys.executable).resolve(), dependencies)
    for name in ("python3", "python"):
        link = under(dependencies, PREFIX) / "bin" / name
        link.symlink_to(Path(sys.executable).resolve().name)
    for found in sorted(SITE.iterdir()):
        if found.name in OWN or found.name.startswith("checkpoint_guard-"):
            copy(found, under(application, SITE) / found.name, UNUSED_IN_SITE)
    for name in ("ckptguard", "kubectl-ckptguard"):
        copy_file(PREFIX / "bin" / name, application)
    copy_libraries(dependencies)
    write_system(dependencies)
    for root in (dependencies, application):
        for found in root.rglob("*.dist-info"):
            for name in UNUSED_METADATA:
                (found / name).unlink(missing_ok=True)
        compile_all(root)
    for name in PACKED:
        pack(under(dependencies, SITE) / name)
    for root in (dependencies, application):
        for path in root.rglob("*"):
            if path.is_file() and not path.is_symlink():
                strip(path)
        settle(root)


def under(root: Path, path: Path) -> Path:
    """Where an absolute path stands below another root."""
    return root / path.relative_to("/")


def copy(source: Path, target: Path, unused: set[str]) -> None:
    """A folder without what is not used."""
    shutil.copytree(source, target, symlinks=True, ignore=shutil.ignore_patterns(*unused), dirs_exist_ok=True)


def copy_file(source: Path, root: Path) -> None:
    """A file to the same path below the root."""
    target = under(root, source)
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(source, target)


def copy_libraries(root: Path) -> None:
    """The shared libraries that programs and extension modules below the root ask for, and the loader."""
    wanted: set[Path] = set()
    programs = [path for path in root.rglob("*.so*") if path.is_file()]
    programs.append(under(root, Path(sys.executable).resolve()))
    for program in programs:
        listed = subprocess.run(["/usr/bin/ldd", str(program)], capture_output=True, text=True, check=False)  # noqa: S603
        for line in listed.stdout.splitlines():
            name, _, place = line.strip().partition(" => ")
            path = (place or name).split(" (")[0].strip()
            if path == "not found":
                raise SystemExit(f"{program} needs {name}, which is not there")
            if path.startswith("/"):
                wanted.add(Path(path))
    # Opened by name at run time: by the thread library when a thread is cancelled.
    wanted |= {path.parent / "libgcc_s.so.1" for path in list(wanted) if (path.parent / "libgcc_s.so.1").exists()}
    for library in sorted(wanted):
        if str(library).startswith(str(root)):
            continue  # a wheel's own
        target = under(root, library)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(library.resolve(), target)


def write_system(root: Path) -> None:
    """What little of /etc a program looks at, and a /tmp."""
    etc = root / "etc"
    etc.mkdir(exist_ok=True)
    (etc / "passwd").write_text(
        f"root:x:0:0:root:/:/nologin\ncheckpoint-guard:x:{USER}:{USER}:checkpoint-guard:/:/nologin\n"
    )
    (etc / "group").write_text(f"root:x:0:\ncheckpoint-guard:x:{USER}:\n")
    (etc / "nsswitch.conf").write_text("hosts: files dns\n")
    # Python's own library is not where the loader looks by itself.
    (etc / "ld.so.conf").write_text(f"{PREFIX}/lib\n")
    subprocess.run(["/sbin/ldconfig", "-r", str(root)], check=True)  # noqa: S603
    shutil.rmtree(root / "var", ignore_errors=True)  # what it kept for the next time
    (root / "tmp").mkdir()
    (root / "tmp").chmod(0o1777)


def compile_all(root: Path) -> None:
    """Bytecode beside every source; it is not compared with the source's time, which an image does not keep.

    In one process and one order, since bytecode tells what else was compiled before it.
    """
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    if not compileall.compile_dir(root, quiet=1, stripdir=str(root), prependdir="/", invalidation_mode=mode, workers=1):
        raise SystemExit("not everything could be compiled")


def pack(package: Path) -> None:
    """A package of pure Python as an archive of its bytecode, which Python imports from."""
    moment = time.gmtime(max(MOMENT, 315532800))  # an archive knows no time before 1980
    when = (moment.tm_year, moment.tm_mon, moment.tm_mday, moment.tm_hour, moment.tm_min, moment.tm_sec)
    with zipfile.ZipFile(package.with_suffix(".zip"), "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for source in sorted(package.rglob("*.py")):
            if source.name.endswith("_test.py"):
                continue
            name = source.relative_to(package.parent).with_suffix(".pyc")
            compiled = source.parent / "__pycache__" / f"{source.stem}.{sys.implementation.cache_tag}.pyc"
            entry = zipfile.ZipInfo(str(name), when)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, compiled.read_bytes())
    (package.parent / f"{package.name}.pth").write_text(f"{package.name}.zip\n")
    shutil.rmtree(package)


def strip(path: Path) -> None:
    """Cuts from a program or library what no loader reads: symbols and debug information, behind the last segment."""
    with path.open("r+b") as file:
        header = file.read(64)
        if len(header) < 64 or header[:6] != b"\x7fELF\x02\x01":  # 64 bits, little-endian
            return
        offset = struct.unpack_from("<Q", header, 32)[0]
        size, count = struct.unpack_from("<HH", header, 54)
        file.seek(offset)
        segments = file.read(size * count)
        ends = [
            sum(struct.unpack_from("<Q", segments, size * number + at)[0] for at in (8, 32)) for number in range(count)
        ]
        file.seek(40)
        file.write(bytes(8))  # there are no sections any more
        file.seek(60)
        file.write(bytes(4))
        file.truncate(max(*ends, offset + size * count))


def settle(root: Path) -> None:
    """One time for everything, so that the same input gives the same layer."""
    for path in [*root.rglob("*"), root]:
        os.utime(path, (MOMENT, MOMENT), follow_symlinks=False)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))

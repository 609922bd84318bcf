"""What lies in a checkpoint directory: one script, run once in a pod, that reads no file as a whole.

The script is POSIX sh and takes Python where the image has one, since that can look at the ends of files, too; else
``find`` of GNU or of busybox. Its answer is lines, ended by a line of its own, so that a cut answer is known as one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import Struct

ASIDE: Final = ".set-aside"
"""Where ``resume --from-step`` puts newer checkpoints; never looked into."""
REMOVING: Final = ".ckptguard-removing-"
"""How the name begins of what ``prune`` is taking apart: no checkpoint any more."""
POINTERS: Final = ("latest", "latest_checkpointed_iteration.txt")
"""Files of a few bytes that name the newest checkpoint."""
_DEPTH: Final = 6
_DEEPEST: Final = 32
"""Folders above an entry, whatever a container's own tools print."""
_MOST: Final = 2.0**63
_MARK: Final = "CKPTGUARD"

# Files that may be cut off and whose end tells it: zip archives (torch.save, numpy) end with a record of their own,
# safetensors say at the beginning how long they are, JSON ends with a bracket. What is neither cut nor readable is
# damaged ("!"): a header that is no table of tensors, JSON that does not parse, zeros, as a lost node leaves them. At
# most 400 files are looked into so. Whatever a file holds, it is never the end of the listing.
PYTHON: Final = r"""
import json, os, stat, struct, sys, time
root = sys.argv[1]
out = getattr(sys.stdout, "buffer", sys.stdout)
looked = [0, 0]
def say(*parts):
    line = "\t".join(parts)
    if "\n" in line or line.count("\t") >= len(parts):
        line = "\t".join(part.replace("\t", "?").replace("\n", "?") for part in parts)
    out.write((line + "\n").encode("utf-8", "backslashreplace"))
def tensors(file, head, size):
    if size < 8:
        return "-"
    length = struct.unpack("<Q", head)[0]
    if length > 100000000:
        return "!"
    if 8 + length > size:
        return "-"
    if length > 4000000:
        return ""
    header = json.loads(file.read(length).decode())
    ends = [0]
    for key, one in header.items():
        if key != "__metadata__":
            begin, end = one["data_offsets"]
            if not (isinstance(begin, int) and isinstance(end, int) and 0 <= begin <= end):
                return "!"
            ends.append(end)
    there = size - 8 - length - max(ends)
    return "-" if there < 0 else "!" if there else "+"
def table(file, size):
    looked[1] += size
    if size <= 1000000 and looked[1] <= 16000000:
        return "+" if isinstance(json.loads(file.read(size).decode()), dict) else "!"
    if file.read(64).lstrip()[:1] != b"{":
        return "!"
    file.seek(-min(64, size), 2)
    return "+" if file.read(64).rstrip()[-1:] == b"}" else "-"
def whole(path, name, size):
    end = os.path.splitext(name)[1]
    known = end in (".pt", ".pth", ".ckpt", ".npz", ".bin", ".safetensors", ".distcp") or name == ".metadata"
    text = name == "trainer_state.json" or name.endswith(".index.json")
    if looked[0] >= 400 or not size or not (known or text):
        return ""
    looked[0] += 1
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        with open(path, "rb", opener=lambda path, _: os.open(path, flags)) as file:
            if text:
                return table(file, size)
            head = file.read(8)
            if head == b"\0" * 8:
                return "!"
            if end == ".safetensors":
                return tensors(file, head, size)
            if head[:4] != b"PK\3\4":
                return ""
            if size < 22:
                return "-"
            file.seek(-22, 2)
            return "+" if file.read(4) == b"PK\5\6" else "-"
    except OSError:
        return ""
    except Exception:
        return "!"
say("CKPTGUARD", "python", str(int(time.time())))
stack = [("", 0)]
while stack:
    below, depth = stack.pop()
    try:
        with os.scandir(os.path.join(root, below) if below else root) as found:
            entries = list(found)
    except OSError:
        say("DENIED", below)
        continue
    for entry in entries:
        shown = below + "/" + entry.name if below else entry.name
        try:
            one = entry.stat(follow_symlinks=False)
            regular = stat.S_ISREG(one.st_mode)
            kind = "l" if entry.is_symlink() else "d" if entry.is_dir(follow_symlinks=False) else "f"
            checked = whole(entry.path, entry.name, one.st_size) if regular else ""
            say(kind, str(one.st_size), "%.2f" % one.st_mtime, checked, shown)
            if kind == "l":
                say("LINK", shown, os.readlink(entry.path))
            elif kind == "d" and depth < 5 and below != ".set-aside":
                stack.append((shown, depth + 1))
            elif regular and entry.name in ("latest", "latest_checkpointed_iteration.txt"):
                flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
                with open(entry.path, "rb", opener=lambda path, _: os.open(path, flags)) as file:
                    say("TEXT", shown, file.read(200).decode("utf-8", "replace").strip())
        except OSError:
            say("DENIED", shown)
say("END")
"""

# A name with a line break in it would forge lines here, its end among them: such entries are left out.
SHELL: Final = r"""
d=$1
if [ "$3" = no-links ]; then
  p=$d
  while [ -n "$p" ]; do
    if [ -L "$p" ]; then printf 'CKPTGUARD\tlink\t0\nEND\n'; exit 0; fi
    p=${p%/*}
  done
fi
if [ ! -e "$d" ]; then printf 'CKPTGUARD\tabsent\t0\nEND\n'; exit 0; fi
if [ ! -d "$d" ]; then printf 'CKPTGUARD\tfile\t0\nEND\n'; exit 0; fi
for p in python3 /usr/bin/python3; do
  if command -v $p >/dev/null 2>&1; then exec $p -E -S -c "$2" "$d"; fi
done
if command -v python >/dev/null 2>&1 && python -E -S -c 'import sys; sys.exit(sys.version_info[0] < 3)'; then
  exec python -E -S -c "$2" "$d"
fi
cd "$d" 2>/dev/null || { printf 'CKPTGUARD\tsh\t0\nDENIED\t\nEND\n'; exit 0; }
printf 'CKPTGUARD\tsh\t%s\n' "$(date +%s)"
n='
'
if find . -maxdepth 0 -printf x >/dev/null 2>&1; then
  find . -name "*$n*" -prune -o -mindepth 1 -maxdepth 6 -path './.set-aside/*/*' -prune -o \
    -mindepth 1 -printf '%y\t%s\t%T@\t\t%P\n' 2>/dev/null
  find . -maxdepth 5 -name "*$n*" -prune -o -path './.set-aside/*/*' -prune -o \
    -type d \( ! -readable -o ! -executable \) -printf 'DENIED\t%P\n' 2>/dev/null
else
  find . -name "*$n*" -prune -o -path './.set-aside/*/*' -prune -o -exec stat -c '%F|%s|%Y|%n' {} + 2>/dev/null |
  while IFS='|' read -r k s t n; do
    case $k in directory) k=d;; symbolic*) k=l;; *) k=f;; esac
    if [ $k = d ] && ! { [ -r "$n" ] && [ -x "$n" ]; }; then printf 'DENIED\t%s\n' "${n#./}"; fi
    [ "$n" = . ] || printf '%s\t%s\t%s\t\t%s\n' $k "$s" "$t" "${n#./}"
  done
fi
for f in latest latest_checkpointed_iteration.txt */latest */latest_checkpointed_iteration.txt; do
  case $f in *"$n"*) continue;; esac
  if [ -f "$f" ] && [ ! -L "$f" ] && [ ! -L "${f%/*}" ]; then
    printf 'TEXT\t%s\t%s\n' "$f" "$(head -c 200 "$f" | tr '\000\n\t' '   ')"
  fi
done
echo END
"""


class Entry(Struct, frozen=True):
    """One file, folder or link. ``size`` in bytes, ``mtime`` in seconds since 1970 by the pod's clock.

    ``whole``: the file's own end says that it was written to the end, or that it was not; None where it does not tell.
    ``damaged``: what is there cannot be read.
    """

    path: str
    kind: str
    size: int
    mtime: float
    whole: bool | None = None
    damaged: bool = False


class Listing(Struct, frozen=True):
    """What was found. ``state``: ``there``, ``absent``, ``file`` (no directory), ``link`` (not followed), ``cut`` (the
    answer did not end).

    ``now`` is the pod's clock, ``texts`` the pointer files by path, ``links`` the targets of links, ``denied`` what may
    not be read, by path (empty: the directory itself).
    """

    state: str
    entries: tuple[Entry, ...] = ()
    texts: dict[str, str] = {}
    links: dict[str, str] = {}
    denied: tuple[str, ...] = ()
    now: float = 0.0

    def files(self) -> int:
        return sum(entry.kind == "f" for entry in self.entries)

    def bytes(self) -> int:
        return sum(entry.size for entry in self.entries if entry.kind == "f")


def command(directory: str, links: bool = True) -> list[str]:
    """What to run in a container to list a directory of it.

    ``links``: whether the directory may be reached through a link. A run's own pod follows those that its user made; a
    helper pod, which sees the whole claim and may be root, does not.
    """
    return ["sh", "-c", SHELL, "sh", directory, PYTHON, *([] if links else ["no-links"])]


def parse(text: str) -> Listing:
    """The answer of the script."""
    # Names may hold every other character that ends a line for Python.
    lines = iter(text.split("\n"))
    state, now = "cut", 0.0
    for line in lines:
        # A login message or a warning of the image may stand before.
        head = line.split("\t")
        if head[0] == _MARK and len(head) == 3:
            state = head[1] if head[1] in ("absent", "file", "link") else "there"
            now = _number(head[2])
            break
    entries: list[Entry] = []
    texts: dict[str, str] = {}
    links: dict[str, str] = {}
    denied: list[str] = []
    ended = False
    for parts in _split(lines):
        if parts == ["END"]:
            ended = True
            break
        if parts[0] == "TEXT" and len(parts) == 3:
            texts[parts[1]] = parts[2].strip()
        elif parts[0] == "LINK" and len(parts) == 3:
            links[parts[1]] = parts[2]
        elif parts[0] == "DENIED":
            denied.append(parts[-1])
        elif len(parts) == 5 and parts[0] in ("f", "d", "l") and parts[4].count("/") < _DEEPEST:
            whole = {"+": True, "-": False, "!": False}.get(parts[3])
            size = int(_number(parts[1]))
            entries.append(
                Entry(
                    path=parts[4],
                    kind=parts[0],
                    size=size,
                    mtime=_number(parts[2]),
                    whole=whole,
                    damaged=parts[3] == "!",
                )
            )
    if not ended:
        state = "cut"
    return Listing(state=state, entries=tuple(entries), texts=texts, links=links, denied=tuple(denied), now=now)


def _split(lines: Iterator[str]) -> Iterator[list[str]]:
    for line in lines:
        yield line.rstrip("\r").split("\t")


def _number(text: str) -> float:
    """What the script counts; 0 for what is no such number, since a container may print what it likes."""
    try:
        found = float(text)
    except ValueError:
        return 0.0
    return found if 0 <= found < _MOST else 0.0

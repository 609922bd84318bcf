"""The programs of a rehearsal: clean ones, and the same with one planted fault each.

A fault is a change of a few lines of a clean program, so that nothing else is different; ``rule`` is what a rehearsal
has to name. ``needs`` says what has to be installed: nothing, ``light`` (XGBoost, Orbax) or ``full`` (torch and what
stands on it).
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from msgspec import Struct

PROGRAMS: Final = Path(__file__).with_name("programs")


class Case(Struct, frozen=True):
    """One program: ``base`` with ``changes`` (from, to), started with ``flags`` and ``arguments``."""

    name: str
    base: str
    rule: str | None = None
    changes: tuple[tuple[str, str], ...] = ()
    flags: tuple[str, ...] = ()
    needs: str = ""
    arguments: tuple[str, ...] = ()
    shell: str = ""
    """Run through ``bash -c`` with this text; ``PROGRAM`` in it is the file."""

    def text(self) -> str:
        """The program's text."""
        text = (PROGRAMS / self.base).read_text()
        for old, new in self.changes:
            if text.count(old) == 0:
                raise ValueError(f"{self.name}: {self.base} has no {old!r}")
            text = text.replace(old, new)
        return text


_COMPARE = ("--compare",)
_TWO = ("--processes", "2")

PLAIN: Final = (
    Case("plain", "plain.py", flags=_COMPARE),
    Case("single", "single.py", flags=_COMPARE),
    Case("folder", "folder.py", flags=_COMPARE),
    Case("inplace", "inplace.py", flags=_COMPARE),
    Case("epochs", "epochs.py"),
    Case("ranks", "ranks.py", flags=_TWO),
    Case("through-bash", "plain.py", shell="cd / && exec python3 PROGRAM"),
    Case(
        "slow-steps",
        "plain.py",
        changes=(("time.sleep(0.02)", "time.sleep(0.1)"),),
        flags=("--grace", "5s"),
    ),
    Case("no-load", "plain.py", "never-resumed", (("found = newest()", "found = None"),)),
    Case("wrong-load", "plain.py", "fixed-resume-path", (("return max(OUT.glob", "return min(OUT.glob"),)),
    Case(
        "optimizer",
        "plain.py",
        "optimizer-not-restored",
        (("{name: loaded[name] for name in state}", '{**state, **{n: loaded[n] for n in ("w", "step", "position")}}'),),
        _COMPARE,
    ),
    Case(
        "rng",
        "plain.py",
        "rng-not-restored",
        (("        random.setstate((version, tuple(internal), gauss))\n", ""),),
        _COMPARE,
    ),
    Case(
        "rng-not-saved",
        "single.py",
        "rng-not-restored",
        (
            ('            "rng": self.random.getstate(),\n', ""),
            ('        self.random.setstate(state["rng"])\n', ""),
        ),
        _COMPARE,
    ),
    Case(
        "data",
        "plain.py",
        "data-repeated",
        (('print(f"resumed', 'state["position"] = 0\n        print(f"resumed'),),
        _COMPARE,
    ),
    Case(
        "text-order",
        "plain.py",
        "text-order-resume",
        (('return max(OUT.glob("step_*.json"), key=number,', 'return max(OUT.glob("step_*.json"), key=str,'),),
    ),
    Case("step", "single.py", "step-not-restored", (('self.step = state["step"]', "self.step = 0"),)),
    Case("overwritten", "single.py", "overwritten-checkpoint", (('self.path + ".tmp"', "self.path"),)),
    Case(
        "torn-newest",
        "folder.py",
        "torn-newest",
        (("good = [path for path in checkpoints() if whole(path)]", "good = checkpoints()"),),
    ),
    Case(
        "unheard",
        "plain.py",
        "no-flush-on-sigterm",
        (("    signal.signal(signal.SIGTERM, on_term)\n", ""), ("STEPS, EVERY = 400, 4", "STEPS, EVERY = 400, 40")),
        ("--grace", "0.3s"),
    ),
    Case(
        "weights-alone",
        "single.py",
        "weights-only-checkpoint",
        (
            ('            "moments": self.moments,\n', ""),
            ('        self.moments = state["moments"]\n', ""),
        ),
        _COMPARE,
    ),
    Case(
        "another-directory",
        "plain.py",
        "directory-not-used",
        (('Path(os.environ["CKPT_DIR"])', 'Path(__file__).parent / "out"\nOUT.mkdir(exist_ok=True)'),),
    ),
    Case(
        "new-directory-each-start",
        "plain.py",
        "timestamped-directory",
        (('Path(os.environ["CKPT_DIR"])', 'Path(os.environ["CKPT_DIR"]) / f"run-{time.time_ns()}"\nOUT.mkdir()'),),
    ),
    Case("rank-race", "ranks.py", "unguarded-rank-write", (("if RANK == 0 and (step", "if (step"),), _TWO),
    Case(
        "data-of-the-epoch",
        "epochs.py",
        "data-repeated",
        (('state["epoch"], state["batch_index"]', 'state["epoch"], 0'),),
        _COMPARE,
    ),
)

LIGHT: Final = (Case("arrays", "arrays.py", flags=_COMPARE, needs="light"),)

CASES: Final = (*PLAIN, *LIGHT)

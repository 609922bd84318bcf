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
    also: tuple[str, ...] = ()
    """What follows from the fault and is named, too."""
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
    Case("two-saves", "plain.py", flags=("--saves", "2")),
    Case(
        "log-beside",
        "plain.py",
        changes=(
            (
                "        time.sleep(0.02)\n",
                '        with (OUT / "metrics.jsonl").open("a") as log:\n            log.write("{}\\n")\n        time.sleep(0.02)\n',
            ),
        ),
    ),
    Case(
        "padded-names",
        "plain.py",
        changes=(('step_{step}.json"', 'step_{step:06d}.json"'), ("key=number, default", "key=str, default")),
    ),
    Case(
        "newest-by-time",
        "plain.py",
        changes=(("key=number, default", "key=lambda path: path.stat().st_mtime_ns, default"),),
    ),
    Case(
        "best-and-last",
        "plain.py",
        changes=(
            (
                "    os.replace(tmp, path(step))\n",
                '    os.replace(tmp, path(step))\n    best = OUT / "best.json.tmp"\n    best.write_text(json.dumps({"loss": step}))\n    os.replace(best, OUT / "best.json")\n',
            ),
            (
                "    found = newest()\n",
                '    found = newest()\n    if (OUT / "best.json").exists():\n        json.loads((OUT / "best.json").read_text())\n',
            ),
        ),
    ),
    Case(
        "pointer",
        "plain.py",
        changes=(
            (
                "    os.replace(tmp, path(step))\n",
                '    os.replace(tmp, path(step))\n    (OUT / "latest.tmp").write_text(path(step).name)\n    os.replace(OUT / "latest.tmp", OUT / "latest")\n',
            ),
            (
                '    return max(OUT.glob("step_*.json"), key=number, default=None)',
                '    pointer = OUT / "latest"\n    return OUT / pointer.read_text() if pointer.exists() else None',
            ),
        ),
    ),
    Case(
        "pointer-to-what-is-written-in-place",
        "plain.py",
        changes=(
            ('OUT / f"step_{step}.json.tmp"', "path(step)"),
            (
                "    os.replace(tmp, path(step))\n",
                '    (OUT / "latest.tmp").write_text(path(step).name)\n    os.replace(OUT / "latest.tmp", OUT / "latest")\n',
            ),
            (
                '    return max(OUT.glob("step_*.json"), key=number, default=None)',
                '    pointer = OUT / "latest"\n    return OUT / pointer.read_text() if pointer.exists() else None',
            ),
        ),
    ),
    Case(
        "marker-renamed",
        "folder.py",
        changes=(
            (
                'with open(os.path.join(folder, "COMPLETE"), "w") as file:\n        file.write("yes")\n',
                'with open(os.path.join(folder, "new"), "w") as file:\n        file.write("yes")\n'
                '    os.replace(os.path.join(folder, "new"), os.path.join(folder, "COMPLETE"))\n',
            ),
        ),
    ),
    Case("bash-in-between", "single.py", shell="python3 PROGRAM; exit $?"),
    Case(
        "random-temporary-name",
        "plain.py",
        changes=(
            ("import time\n", "import tempfile\nimport time\n"),
            ('    tmp = OUT / f"step_{step}.json.tmp"\n', "    tmp = Path(tempfile.mkstemp(dir=OUT)[1])\n"),
        ),
    ),
    Case(
        "notes-outside",
        "plain.py",
        changes=(("def main():\n", 'def main():\n    Path("notes.json").write_text("{}")\n'),),
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
        "overwritten-and-synced",
        "single.py",
        "overwritten-checkpoint",
        (
            ('self.path + ".tmp"', "self.path"),
            (
                "pickle.dump(state, file)\n",
                "pickle.dump(state, file)\n            file.flush()\n            os.fsync(file.fileno())\n            time.sleep(0.05)\n",
            ),
        ),
    ),
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

LIGHT: Final = (
    Case("arrays", "arrays.py", flags=_COMPARE, needs="light"),
    Case("xgboost", "xgb.py", flags=_COMPARE, needs="light"),
    Case("orbax", "orbax_manager.py", flags=_COMPARE, needs="light"),
    Case(
        "arrays-generator",
        "arrays.py",
        "rng-not-restored",
        (('    rng.bit_generator.state = state["rng"].item()\n', ""),),
        _COMPARE,
        "light",
    ),
    Case(
        "xgboost-no-load",
        "xgb.py",
        "never-resumed",
        (("key=rounds, default=None)", "key=rounds, default=None) and None"),),
        (),
        "light",
    ),
    Case(
        "xgboost-text-order",
        "xgb.py",
        "text-order-resume",
        (('max(OUT.glob("model_*.ubj"), key=rounds,', 'max(OUT.glob("model_*.ubj"), key=str,'),),
        (),
        "light",
    ),
    Case(
        "orbax-key",
        "orbax_manager.py",
        "rng-not-restored",
        (("signal.signal(signal.SIGTERM", 'state["key"] = jax.random.PRNGKey(0)\nsignal.signal(signal.SIGTERM'),),
        _COMPARE,
        "light",
    ),
    Case(
        "orbax-first",
        "orbax_manager.py",
        "fixed-resume-path",
        (("    step = manager.latest_step()\n", "    step = manager.all_steps()[0]\n"),),
        (),
        "light",
    ),
)

FULL: Final = (
    Case("torch", "torch_loop.py", flags=_COMPARE, needs="full"),
    Case("transformers", "trainer.py", flags=_COMPARE, needs="full"),
    Case("accelerate", "accelerated.py", flags=_COMPARE, needs="full"),
    Case("lightning", "lightning_fit.py", needs="full"),
    Case("dcp", "distributed.py", flags=(*_TWO, *_COMPARE), needs="full"),
    Case(
        "torch-no-flush-needed",
        "torch_loop.py",
        changes=(("signal.signal(signal.SIGTERM", "print(signal.SIGTERM"),),
        flags=("--grace", "10s"),
        needs="full",
    ),
    Case(
        "torch-optimizer",
        "torch_loop.py",
        "optimizer-not-restored",
        (('    optimizer.load_state_dict(state["optimizer"])\n', ""),),
        (),
        "full",
    ),
    Case(
        "torch-scheduler",
        "torch_loop.py",
        "scheduler-not-restored",
        (('    scheduler.load_state_dict(state["scheduler"])\n', ""),),
        (),
        "full",
    ),
    Case(
        "torch-rng", "torch_loop.py", "rng-not-restored", (("torch.set_rng_state(pending)", "pass"),), _COMPARE, "full"
    ),
    Case(
        "torch-data",
        "torch_loop.py",
        "data-repeated",
        (("        if at < skip:\n            continue\n", ""),),
        _COMPARE,
        "full",
        also=("rng-not-restored",),
    ),
    Case(
        "torch-weights-alone",
        "torch_loop.py",
        "weights-only-checkpoint",
        (
            ('                "optimizer": optimizer.state_dict(),\n', ""),
            ('    optimizer.load_state_dict(state["optimizer"])\n', ""),
        ),
        (),
        "full",
    ),
    Case(
        "torch-overwritten",
        "torch_loop.py",
        "overwritten-checkpoint",
        (
            (
                'out / "writing.tmp")\n            (out / "writing.tmp").rename(out / f"step_{step}.pt")',
                'out / "step_0.pt")',
            ),
        ),
        (),
        "full",
    ),
    Case(
        "transformers-no-resume",
        "trainer.py",
        "never-resumed",
        (("str(newest) if newest else None", "None"),),
        (),
        "full",
    ),
    Case(
        "transformers-torn",
        "trainer.py",
        "torn-newest",
        (('(folder / "trainer_state.json").exists()', "True"),),
        (),
        "full",
    ),
    Case("accelerate-wrong-load", "accelerated.py", "fixed-resume-path", (("found[-1]", "found[0]"),), (), "full"),
    Case(
        "accelerate-step",
        "accelerated.py",
        "step-not-restored",
        (('    done = int(found[-1].name.split("_")[1])\n', ""),),
        (),
        "full",
    ),
    Case(
        "lightning-no-resume", "lightning_fit.py", "never-resumed", (("ckpt_path=found", "ckpt_path=None"),), (), "full"
    ),
    Case(
        "lightning-weights-alone",
        "lightning_fit.py",
        "weights-only-checkpoint",
        (
            (
                "trainer.fit(Net(), loader, ckpt_path=found)",
                'net = Net()\nif found:\n    net.load_state_dict(torch.load(found, weights_only=False)["state_dict"])\ntrainer.fit(net, loader)',
            ),
            ("save_top_k=-1,", "save_top_k=-1, save_weights_only=True,"),
            ('model-step={trainer.global_step}.ckpt")', 'model-step={trainer.global_step}.ckpt", weights_only=True)'),
        ),
        (),
        "full",
        also=("step-not-restored", "scheduler-not-restored"),
    ),
    Case(
        "dcp-optimizer",
        "distributed.py",
        "optimizer-not-restored",
        (
            (
                'set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])',
                'model.load_state_dict({f"module.{name}": one for name, one in state["model"].items()})',
            ),
        ),
        _TWO,
        "full",
    ),
    Case(
        "dcp-apart",
        "distributed.py",
        "ranks-resume-apart",
        (
            (
                "dist.broadcast_object_list(chosen)",
                'chosen = [sorted(out.glob("step_*"), key=number)[-1 - dist.get_rank()]] if len(list(out.glob("step_*"))) > 1 else [None]',
            ),
        ),
        _TWO,
        "full",
    ),
)

CASES: Final = (*PLAIN, *LIGHT, *FULL)

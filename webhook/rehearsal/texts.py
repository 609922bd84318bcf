"""Why each fault matters and what to change: rule id -> (why, fix)."""

from __future__ import annotations

from typing import Final

TEXTS: Final[dict[str, tuple[str, str]]] = {
    "directory-not-used": (
        "what is saved there goes with the pod, and a restart finds nothing",
        'save where CKPT_DIR says: os.environ["CKPT_DIR"]',
    ),
    "never-resumed": (
        "every restart begins at step 0",
        "at the start, look for the newest complete checkpoint in CKPT_DIR and load it",
    ),
    "timestamped-directory": (
        "every start saves into a folder of its own and never finds the one before",
        "name the folder after the run, not after the time of its start",
    ),
    "text-order-resume": (
        "as text checkpoint-9 comes after checkpoint-100: a restart goes back to an old step",
        'order by the number in the name: max(paths, key=lambda p: int(re.findall(r"\\d+", p.name)[-1]))',
    ),
    "fixed-resume-path": (
        "every restart goes back to the same step, and what was trained since is done again",
        "look for the newest complete checkpoint at every start",
    ),
    "step-not-restored": (
        "the steps that are done are done again, and the schedule with them",
        "take the step from the checkpoint, and begin the loop there",
    ),
    "restart-failed": (
        "the run never comes back: each restart fails until the budget is used up",
        "run it once more on its own checkpoint and mend what it says",
    ),
    "torn-newest": (
        "a node that is lost while it saves leaves a checkpoint that no restart gets past",
        "write beside it and rename when it is whole, or skip what is not complete",
    ),
    "overwritten-checkpoint": (
        "a kill while it saves leaves nothing to go on from",
        "write beside it and move it over the old one when it is whole: os.replace(tmp, path)",
    ),
    "no-flush-on-sigterm": (
        "a suspend, an eviction or a preemption loses the work since the last save",
        "save on SIGTERM, or save more often than the grace period is long",
    ),
    "sigterm-not-forwarded": (
        "a suspend, an eviction or a preemption loses the work since the last save, and the grace period with it",
        "let the program take the shell's place: exec python train.py",
    ),
    "unguarded-rank-write": (
        "processes that write one file over each other leave one that cannot be read, now and then",
        "let the process with rank 0 write, or each its own file",
    ),
    "ranks-resume-apart": (
        "processes that go on from different steps train different models, or hang",
        "let one process choose the checkpoint and tell the others",
    ),
    "optimizer-not-restored": (
        "the loss jumps at every restart",
        "load the optimizer's state together with the weights",
    ),
    "weights-only-checkpoint": (
        "the loss jumps at every restart, since the optimizer begins anew",
        "save the optimizer's state, the step and the generators with the weights",
    ),
    "scheduler-not-restored": (
        "the learning rate warms up again at every restart",
        "save scheduler.state_dict(), and load it",
    ),
    "rng-not-restored": (
        "a resumed run draws what it drew before: dropout, augmentation and shuffling repeat",
        "save the state of each generator, and set it after the load",
    ),
    "data-repeated": (
        "a resumed run trains on the same data again, and never sees the rest of the epoch",
        "save the position in the data, and skip to it: sampler state, set_epoch, or the loader's state_dict",
    ),
    "weights-not-restored": (
        "training begins anew from other weights",
        "load the weights of the checkpoint into the model that is trained",
    ),
    "resume-differs": (
        "the resumed run is another run than the one that was interrupted",
        "compare what is saved with what the loop changes",
    ),
}

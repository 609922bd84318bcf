"""``ckptguard delete NAME``: delete a run; its checkpoints stay, and the command says where."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from webhook.cli.output import write
from webhook.cli.outputs import write_json
from webhook.cli.run_flags import add_flags, run_on

if TYPE_CHECKING:
    from webhook.runs.session import Session


def configure(parser: argparse.ArgumentParser) -> None:
    """The flags of ``delete``."""
    parser.description = "Delete a TrainJob. To stop one, and go on later, there is ckptguard stop."
    add_flags(parser)
    parser.add_argument(
        "--with-data", action="store_true", help="also where the claim with the checkpoints goes with the run"
    )
    parser.epilog = "exit code: 0 deleted, 2 could not delete, or the data would be deleted too"


def run(arguments: argparse.Namespace) -> int:
    """0 or 2, as the help says."""
    return run_on(arguments, lambda session: say_deleted(session, arguments))


def say_deleted(session: Session, arguments: argparse.Namespace) -> int:
    """Delete, and say what is left. Raises CannotDo."""
    from webhook.runs.delete import delete

    done = delete(session, arguments.with_data)
    directory = done.directory
    stays = directory is not None and directory.claim is not None and directory.claim not in done.lost
    stays = stays and not done.absent
    if arguments.output == "json":
        write_json(
            {
                "run": session.name,
                "namespace": session.namespace,
                "deleted": True,
                "claim": directory.claim if directory is not None and stays else None,
                "pathOnClaim": directory.on_claim if directory is not None and stays else None,
                "claimsDeleted": list(done.lost),
                "seconds": round(done.seconds, 2),
            }
        )
        return 0
    if done.unseen:
        session.say(f"warning: {done.unseen}")
    lines = [f"{session.name} is deleted"]
    if directory is not None and stays:
        lines += [
            f'its checkpoints stay in directory "{directory.on_claim or "?"}" of claim "{directory.claim}"',
            f'a TrainJob "{session.name}" that is created again with the same directory goes on from them',
        ]
    elif done.lost:
        lines.append(f"and with it claim {', '.join(done.lost)} and the checkpoints on it")
    elif directory is not None and done.absent:
        lines.append(f'claim "{directory.claim}", where it kept its checkpoints, does not exist')
    elif directory is None:
        lines.append("where it kept its checkpoints is not known; no claim was deleted")
    elif directory.lasting:
        lines.append(f'its checkpoints stay where they are: "{directory.path}" of its pods, on {directory.volume}')
    else:
        lines.append("it kept no checkpoints on a claim: nothing is left of them")
    write(lines)
    return 0

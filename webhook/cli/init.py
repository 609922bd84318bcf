"""``ckptguard init``: a claim, a TrainingRuntime and a TrainJob to start from."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Final

from webhook.cli.cluster_flags import RELEASES, image_name, object_name, trainer_release
from webhook.cli.output import complain, write_text
from webhook.model.release import NEWEST

if TYPE_CHECKING:
    from webhook.model.cluster import StorageClass
    from webhook.model.policy import Policy

_NAME: Final = 40
"""Characters of ``--name``: leaves room for what Trainer, JobSet and the Job put behind it, within 63."""
_LARGEST: Final = 2**63
"""Bytes beyond which Kubernetes counts no more."""


def configure(parser: argparse.ArgumentParser) -> None:
    """The flags of ``init``."""
    parser.description = (
        "Write a claim, a TrainingRuntime and a TrainJob as YAML. Comments at the top say what is left to do before "
        "they can start: the image, where no public one has the framework, and how your module gets into the pods."
    )
    parser.add_argument("--framework", default="hf-trainer", help="what trains (default %(default)s); ? lists them")
    parser.add_argument("--nodes", type=_number, default=1, help="pods that train (default 1)")
    parser.add_argument("--gpus", type=_number_or_none, default=1, help="GPUs of each pod (default 1)")
    parser.add_argument("--model-params", metavar="COUNT", default="7B", help="parameters of the model (default 7B)")
    parser.add_argument("--checkpoint-size", metavar="SIZE", help="size of one checkpoint; else from --model-params")
    parser.add_argument("--keep", type=_number, default=3, help="checkpoints to keep (default 3)")
    parser.add_argument("--every", type=_number, default=500, help="steps between two checkpoints (default 500)")
    parser.add_argument(
        "--class", dest="storage_class", type=object_name, metavar="NAME", help="StorageClass (else of the cluster)"
    )
    parser.add_argument("--image", type=image_name, help="the image that trains")
    parser.add_argument(
        "--name", type=_run_name, default="train", help="name of the runtime; the others begin with it (default train)"
    )
    parser.add_argument("-n", "--namespace", type=_label, help="namespace of the three objects")
    parser.add_argument(
        "--trainer",
        metavar="RELEASE",
        type=trainer_release,
        default=NEWEST,
        help=f"the Trainer release: {RELEASES} (default {NEWEST.value})",
    )
    parser.add_argument("--policy", metavar="FILE", help="the policy file of the cluster")
    parser.add_argument("--kubeconfig", metavar="FILE", help="where to look for classes; default: kubectl's")
    parser.add_argument("--context", help="context of the kubeconfig")
    parser.epilog = "exit code: 0 success, 2 a required value is missing (named on stderr)"


def _number(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) <= 100_000:
        raise argparse.ArgumentTypeError(f'"{text}" is no number from 1 on')
    return int(text)


def _number_or_none(text: str) -> int:
    return 0 if text == "0" else _number(text)


def _label(text: str) -> str:
    words = text.split("-")
    if not 0 < len(text) <= 63 or not text.isascii() or text != text.lower() or not text.replace("-", "").isalnum():
        raise argparse.ArgumentTypeError(f'"{text}" is no name: a-z, 0-9 and "-", at most 63 characters')
    if not words[0] or not words[-1]:
        raise argparse.ArgumentTypeError(f'"{text}" is no name: it may not begin or end with "-"')
    return text


def _run_name(text: str) -> str:
    """A TrainJob's name begins with a letter, and pods get more behind it: ``<name>-1-node-0-0-xxxxx``."""
    if not _label(text)[0].isalpha() or len(text) > _NAME:
        raise argparse.ArgumentTypeError(f'"{text}" is no name of a run: a letter first, at most {_NAME} characters')
    return text


def run(arguments: argparse.Namespace) -> int:
    """0 or 2."""
    from webhook.cli.inputs import load_policy_file, policy_in
    from webhook.model.size import parse_bytes
    from webhook.reports.review import Fault
    from webhook.reports.text import fault_line
    from webhook.runs.start import Plan, checkpoint_bytes, claim_bytes, how_to_start, objects, starter_of
    from webhook.runs.starters import STARTERS

    faults: list[Fault] = []
    policy = load_policy_file(arguments.policy, faults)
    if policy is None:
        complain(fault_line(fault, False) for fault in faults)
        return 2
    notes: list[str] = []
    policy = policy_in(policy, arguments.namespace, notes)
    starter = starter_of(arguments.framework)
    if starter is None:
        width = max(len(one.id) for one in STARTERS)
        known = [f"  {one.id:<{width}}  {one.title}" for one in STARTERS]
        if arguments.framework == "?":
            write_text("\n".join(known))
            return 0
        complain([f'error: unknown framework "{arguments.framework}"; known:', *known])
        return 2
    if arguments.checkpoint_size is not None:
        size = parse_bytes(arguments.checkpoint_size)
        written = arguments.checkpoint_size
    else:
        size = checkpoint_bytes(arguments.model_params, policy.checkpoint_sizes)
        written = arguments.model_params
    if size is None or size <= 0:
        complain([f'error: "{written}" is no size of a checkpoint or number of parameters: write 80Gi or 7B'])
        return 2
    chosen = _class(arguments, policy)
    if chosen is None:
        return 2
    storage_class, shared = chosen
    plan = Plan(
        starter=starter,
        name=arguments.name,
        namespace=arguments.namespace,
        nodes=arguments.nodes,
        size=size,
        keep=arguments.keep,
        every=arguments.every,
        storage_class=storage_class,
        shared=shared,
        release=arguments.trainer,
        image=arguments.image,
        gpus=arguments.gpus,
        policy=policy,
    )
    if claim_bytes(plan) >= _LARGEST:
        complain([f'error: no claim is large enough for {plan.keep} checkpoints of "{written}"'])
        return 2
    steps = how_to_start(plan)
    head = "".join(f"# {line}\n" for line in ["Before it can start:", *steps]) if steps else ""
    write_text(head + "---\n".join(map(yaml_of, objects(plan))))
    complain(f"note: {note}" for note in notes)
    if steps:
        complain(["note: what is left to do before it can start stands at the top of the YAML"])
    if plan.keep == 1:
        complain(["note: one checkpoint is kept, as asked for: review warns of it [single-checkpoint-kept]"])
    return 0


def yaml_of(raw: object) -> str:
    """YAML with texts of several lines as they are read, which a person will edit."""
    import yaml

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: object) -> bool:
            return True

    def text(dumper: yaml.SafeDumper, value: str) -> yaml.Node:
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)

    Dumper.add_representer(str, text)
    return str(yaml.dump(raw, Dumper=Dumper, sort_keys=False, width=120))


def _class(arguments: argparse.Namespace, policy: Policy) -> tuple[str, bool] | None:
    """The class, and whether many nodes can mount what it makes; None, and why, where there is none to take."""
    from webhook.runs.start import choose_class

    if arguments.storage_class:
        return arguments.storage_class, arguments.nodes > 1
    classes = _classes(arguments)
    if classes is None:
        return None
    chosen = choose_class(classes, arguments.nodes, policy)
    if chosen is not None:
        return chosen[0].name, chosen[1]
    there = ", ".join(f"{one.name} ({one.provisioner})" for one in classes) or "none"
    wanted = "that many nodes can mount" if arguments.nodes > 1 else "whose volumes outlive the node"
    complain(
        [
            f"error: the cluster has no class {wanted}, as far as is known: {there}",
            "say --class NAME, or list its provisioner in the policy under storage.provisioners",
        ]
    )
    return None


def _classes(arguments: argparse.Namespace) -> list[StorageClass] | None:
    from webhook.cli.cluster_flags import connect
    from webhook.cluster.access import Refused, Unreachable
    from webhook.model.cluster import StorageClass
    from webhook.model.names import DEFAULT_CLASS
    from webhook.runs.api import each

    api = connect(Path(arguments.kubeconfig) if arguments.kubeconfig else None, arguments.context)
    if api is None:
        complain(["say --class NAME to do without a cluster"])
        return None
    try:
        return [
            StorageClass(
                name=str(raw["metadata"]["name"]),
                provisioner=str(raw.get("provisioner") or ""),
                default=((raw["metadata"].get("annotations") or {}).get(DEFAULT_CLASS)) == "true",
            )
            for raw in each(api, "/apis/storage.k8s.io/v1/storageclasses")
        ]
    except (Refused, Unreachable) as error:
        complain([f"error: the cluster's classes cannot be read: {error}", "say --class NAME"])
        return None

"""A user's script: submits a training function with the Kubeflow SDK, and prints the name of the TrainJob.

submit.py RUNTIME NAMESPACE [VARIABLE=VALUE ...]
"""

import sys

from kubeflow.trainer import CustomTrainer, KubernetesBackendConfig, TrainerClient  # type: ignore[import-not-found]


def train() -> None:
    """What runs in the pods."""
    import os

    print("writing to", os.environ.get("CKPT_DIR"))


def main(runtime: str, namespace: str, *variables: str) -> None:
    """Submits and asks for what was submitted."""
    client = TrainerClient(KubernetesBackendConfig(namespace=namespace))
    env = {"EPOCHS": "3", **dict(variable.split("=", 1) for variable in variables)}
    name = client.train(runtime=client.get_runtime(runtime), trainer=CustomTrainer(func=train, num_nodes=2, env=env))
    print(client.get_job(name).name)


if __name__ == "__main__":
    main(*sys.argv[1:])

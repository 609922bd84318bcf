# What every script here takes from the environment; read with `.`.
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
LAB_HOME=${LAB_HOME:-${XDG_CACHE_HOME:-$HOME/.cache}/checkpoint-guard/lab}   # bin, img, run, stor
L=${L:-$LAB_HOME/run}               # state: etcd, disks of nodes, logs, kubeconfig
BIN=${BIN:-$LAB_HOME/bin}           # programs, put there by machine.py
IMG=${IMG:-$LAB_HOME/img}           # images that nodes get: python:3.12-slim, pause
PREFIX=${PREFIX:-kl}                # of network namespaces and cgroups
NET=${NET:-10.210}                  # the first half of every address
PORT=${PORT:-26443}                 # of the API server, also on the machine's 127.0.0.1
STORAGE=${STORAGE:-$L/storage}      # every node sees it as /mnt/storage, as if it were network storage
PYTHON=${PYTHON:-python3}           # with PyYAML
export LAB_HOME L BIN IMG PREFIX NET PORT STORAGE PYTHON PATH=$BIN:$PATH KUBECONFIG=$L/kubeconfig
alive() { [ -s "$1" ] && kill -0 "$(cat "$1")" 2>/dev/null; }
N0="nsenter --net=/run/netns/${PREFIX}0 --"   # in the control plane's network: before a command
in0() { $N0 "$@"; }
# All CRDs are served. kubectl fails at once where one is so new that it has no conditions yet.
established() {
  for _ in 1 2 3 4 5; do
    kubectl wait --for=condition=Established crd --all --timeout=60s >/dev/null 2>"$L/established.log" && return 0
    sleep 1
  done
  cat "$L/established.log"; return 1
}

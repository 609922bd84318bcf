#!/bin/bash
# load.sh ARCHIVE [N...]: imports a docker archive into the containerd of each running node
set -euo pipefail
. "$(dirname "$0")/env.sh"
A=$1; shift; [ $# -gt 0 ] || set -- $(ls -d "$L"/node*/ | sed -E 's#.*/node([0-9]+)/#\1#')
for n in "$@"; do p=$(cat $L/node$n/init.pid) && c=$(cat /proc/$p/task/$p/children | awk '{print $1}') && nsenter -t $c --mount -- ctr -a /run/containerd/containerd.sock -n k8s.io images import "$A"; done

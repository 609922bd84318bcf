#!/bin/bash
# Ends what up.sh started, by pid, and removes its namespaces and cgroups. KEEP=1 keeps the state folder.
set -u
. "$(dirname "$0")/env.sh"
for d in "$L"/node*/; do [ -d "$d" ] || continue; n=$(basename "$d"); n=${n#node}
  if [ "${KEEP:-}" = 1 ]; then "$HERE/node.sh" kill $n; else "$HERE/node.sh" rm $n; fi; done
# the API server before etcd, and each waited for: without etcd it would linger
for p in coredns apiport apisock sched cm apiserver etcd; do f=$L/$p.pid; [ -s $f ] || continue; q=$(cat $f); rm -f $f
  kill "$q" 2>/dev/null || continue
  for i in $(seq 50); do kill -0 $q 2>/dev/null || break; sleep 0.1; done; kill -9 $q 2>/dev/null
done
for n in $(ip netns list 2>/dev/null | awk '{print $1}' | grep -E "^${PREFIX}[0-9]+$"); do ip netns del $n; done
for i in 1 2 3 4 5 6 7 8 9; do for c in /sys/fs/cgroup/*/; do [ -d $c$PREFIX$i ] && find $c$PREFIX$i -depth -type d -exec rmdir {} + 2>/dev/null; done; done
[ "${KEEP:-}" = 1 ] || rm -rf "$L"

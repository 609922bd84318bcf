#!/bin/bash
# packages.sh PROGRAM:PACKAGE...: installs the packages whose PROGRAM is not there. A mirror that fails is asked three
# times. Exit code 75 where they still cannot be had: that is this machine's fault, not that of what is tested.
set -euo pipefail
need=()
for pair in "$@"; do
  [ -n "$(command -v "${pair%%:*}")" ] || need+=("${pair##*:}")
done
[ ${#need[@]} -gt 0 ] || exit 0
for pause in 5 20 0; do
  if apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${need[@]}"; then
    exit 0
  fi
  sleep "$pause"
done
echo "packages that cannot be installed: ${need[*]}"
exit 75

#!/bin/bash
# Makes two local stand-in images, nothing pulled:
#   $IMG/python.tar : docker.io/library/python:3.12-slim (+ :3.12, :3.12-slim-bookworm): Debian bookworm minbase
#                     with a CPython 3.12 under /usr/local, laid as the official image lays it
#   $IMG/pause.tar  : registry.k8s.io/pause:3.10, a static Go program
# env: IMG (output folder), PY (a CPython 3.12 prefix to copy; default: the newest one that pyenv has)
set -euo pipefail
. "$(dirname "$0")/env.sh"
PYVER=3.12
PY=${PY:-$(ls -d "$(pyenv root)"/versions/$PYVER.* 2>/dev/null | sort -V | tail -1)}
[ -x "$PY/bin/python$PYVER" ] || { echo "PY has to name the prefix of a CPython $PYVER" >&2; exit 75; }
mkdir -p "$IMG"; R=$IMG/rootfs
if [ ! -f "$IMG/python.tar" ]; then
  for pause in 5 20 no; do   # a mirror that fails is asked three times; then exit code 75, as packages.sh
    rm -rf "$R"
    mmdebstrap --quiet --variant=minbase --mode=root \
      --include=ca-certificates,netbase,tzdata,libssl3,libffi8,libsqlite3-0,libreadline8,libncursesw6,libexpat1,libbz2-1.0,liblzma5,zlib1g,libuuid1,libgdbm6,libdb5.3 \
      --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
      bookworm "$R" && break
    [ "$pause" != no ] || exit 75
    sleep "$pause"
  done
  # CPython: bin, lib, include; without the test suite, caches and whatever was pip-installed besides pip
  (cd "$PY" && tar --exclude=__pycache__ --exclude="lib/python$PYVER/test" --exclude="lib/python$PYVER/site-packages/*" \
      --exclude='*.a' -cf - "bin/python$PYVER" lib/libpython* "lib/python$PYVER" "include/python$PYVER") | tar -C "$R/usr/local" -xf -
  SP="$R/usr/local/lib/python$PYVER/site-packages"; mkdir -p "$SP"
  rm -f "$R/etc/resolv.conf" "$R/etc/hostname"; : > "$R/etc/hostname"
  chroot "$R" ldconfig
  for n in python python3; do ln -sf "python$PYVER" "$R/usr/local/bin/$n"; done
  chroot "$R" /usr/local/bin/python3 -m ensurepip -q --root / 2>/dev/null || chroot "$R" /usr/local/bin/python3 -m ensurepip
  ln -sf pip3 "$R/usr/local/bin/pip"
  find "$R/usr/local" -name __pycache__ -prune -exec rm -rf {} +
  rm -rf "$R"/var/lib/apt/lists/* "$R"/var/cache/apt/*.bin "$R"/var/log/*.log "$R"/dev/* 
  chroot "$R" /usr/local/bin/python -c 'import ssl,sqlite3,ctypes,zlib,lzma,bz2,readline,sys;print(sys.version)'
  "$PYTHON" "$HERE/mkimage.py" "$R" "$IMG/python.tar" "docker.io/library/python:$PYVER-slim,docker.io/library/python:$PYVER,docker.io/library/python:$PYVER-slim-bookworm" \
    --cmd '["python3"]' --env LANG=C.UTF-8 --env PYTHON_VERSION="$(chroot "$R" /usr/local/bin/python -c 'import platform;print(platform.python_version())')"
fi
if [ ! -f "$IMG/pause.tar" ]; then
  mkdir -p "$IMG/pauseroot"
  (cd "$HERE/pause" && CGO_ENABLED=0 go build -buildvcs=false -trimpath -ldflags '-s -w' -o "$IMG/pauseroot/pause" .)
  "$PYTHON" "$HERE/mkimage.py" "$IMG/pauseroot" "$IMG/pause.tar" registry.k8s.io/pause:3.10 --entrypoint '["/pause"]'
fi
ls -la "$IMG"/*.tar

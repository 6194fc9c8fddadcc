# SPDX-License-Identifier: Apache-2.0
# Sourced by the tests beside it, which say what `cache` is: chroots of the releases that people
# have, made by mmdebstrap as root, in the folder `work`, which goes with the script.
work=$(mktemp -d)
trap 'umount "$work"/*/proc 2>/dev/null || true; rm -rf --one-file-system "$work"' EXIT
name=$(basename "$0")
skip() { echo "$name: skipped: $*" >&2; exit 77; }
step() { printf '%s  %s\n' "$(date +%T)" "$*" >&2; }
fail() { echo "$name: $*" >&2; exit 1; }
[ "$(id -u)" = 0 ] || skip "needs root"
command -v mmdebstrap >/dev/null || skip "needs mmdebstrap"

# fetch RELEASE [argument...]: its archive, unless it is there.
fetch() {
  local release=$1
  shift
  [ ! -e "$cache/$release.tar" ] || return 0
  mkdir -p "$cache"
  mmdebstrap --quiet --variant=apt "$@" >"$work/mmdebstrap.log" 2>&1 || {
    tail -5 "$work/mmdebstrap.log" >&2
    return 1
  }
  mv "$cache/part.tar" "$cache/$release.tar"
}

# chroot_of RELEASE: into "$work/RELEASE". False: it cannot be made here.
chroot_of() {
  local keys=/usr/share/keyrings/ubuntu-archive-keyring.gpg
  [ ! -e "$work/$1" ] || return 0
  if [ "$1" = noble ]; then
    [ -e $keys ] || keys=$cache/ubuntu-archive-keyring.gpg
    [ -e "$keys" ] || ubuntu_keys "$keys" || return 1
    fetch noble --keyring="$keys" --components=main,universe noble "$cache/part.tar" \
      http://archive.ubuntu.com/ubuntu || return 1
  else
    fetch "$1" "$1" "$cache/part.tar" || return 1
  fi
  mkdir "$work/$1"
  tar -C "$work/$1" -xf "$cache/$1.tar" --exclude=./dev/*
  mkdir -p "$work/$1/dev/shm" "$work/$1/run"
  mknod -m666 "$work/$1/dev/null" c 1 3
  ln -s /proc/self/fd "$work/$1/dev/fd"
  mount -t proc proc "$work/$1/proc"
  cp -L /etc/resolv.conf "$work/$1/etc/resolv.conf"
  printf '#!/bin/sh\nexit 101\n' >"$work/$1/usr/sbin/policy-rc.d"
  chmod 755 "$work/$1/usr/sbin/policy-rc.d"
}

# inside RELEASE COMMAND...
inside() {
  local where=$work/$1
  shift
  chroot "$where" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C HOME=/root \
    DEBIAN_FRONTEND=noninteractive "$@"
}

# ubuntu_keys FILE: as Debian 13 has them, whose own keys this machine knows.
ubuntu_keys() {
  chroot_of trixie || return 1
  inside trixie sh -c 'apt-get update -qq && apt-get install -y -qq ubuntu-archive-keyring' \
    >"$work/keys.log" 2>&1 || return 1
  cp -L "$work/trixie/usr/share/keyrings/ubuntu-archive-keyring.gpg" "$1"
}

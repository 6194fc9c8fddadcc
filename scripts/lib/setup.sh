# SPDX-License-Identifier: Apache-2.0
# Sourced by the scripts: finds the checkout, installs missing Debian packages, sets up and builds.
# Needs Debian 12 or 13, or Ubuntu 24.04, and, where packages are missing, root or sudo.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
jobs=$(nproc)

# help [STATUS]: the opening comment of the script that runs, and the end of it.
help() {
  sed -n '3,/^[^#]/s/^# \{0,1\}//p' "$0" >&$((${1:-0} ? 2 : 1))
  exit "${1:-0}"
}

say() { printf '%s  %s\n' "$(date +%T)" "$*" >&2; }

# ensure_packages PACKAGE...: installs those that are missing, with apt.
ensure_packages() {
  local missing=() p
  for p in "$@"; do
    dpkg-query -W -f '${db:Status-Abbrev}' "$p" 2>/dev/null | grep -q '^ii' || missing+=("$p")
  done
  [ ${#missing[@]} -eq 0 ] && return
  local sudo=()
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || {
      echo "missing packages, and neither root nor sudo: ${missing[*]}" >&2
      exit 1
    }
    sudo=(sudo)
  fi
  say "installing ${#missing[@]} packages: ${missing[*]}"
  # policy-rc.d: a system libvirtd or the like must not be started because a demo wanted its files.
  local policy=/usr/sbin/policy-rc.d made=
  if [ ! -e $policy ]; then
    printf '#!/bin/sh\nexit 101\n' | "${sudo[@]}" tee $policy >/dev/null
    "${sudo[@]}" chmod 755 $policy
    made=1
  fi
  local rc=0
  { "${sudo[@]}" apt-get update -qq &&
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
      "${missing[@]}"; } >"${TMPDIR:-/tmp}/sluice-apt.$$.log" 2>&1 || rc=$?
  [ -z "$made" ] || "${sudo[@]}" rm -f $policy
  if [ $rc -ne 0 ]; then
    tail -30 "${TMPDIR:-/tmp}/sluice-apt.$$.log" >&2
    echo "apt could not install: ${missing[*]}" >&2
    exit 1
  fi
  rm -f "${TMPDIR:-/tmp}/sluice-apt.$$.log"
}

# Debian 12, where the gate runs: its default Boost, 1.74, has no JSON; later releases' have. Other
# compilers and libraries warn of other things (GCC 13 of fmt 9): nobody's build fails for that.
boost='' werror=false
! grep -qs '^VERSION_CODENAME=bookworm' /etc/os-release || boost=1.81 werror=true
# One list a purpose; docs/internals/dependencies.md says why each is there.
build_packages=(g++ meson ninja-build pkg-config python3 "libboost$boost-dev"
  "libboost-json$boost-dev" libfmt-dev libtomlplusplus-dev libcli11-dev libpugixml-dev
  libseccomp-dev libzstd-dev liblz4-dev debhelper protobuf-compiler protobuf-compiler-grpc)
test_packages=(libgtest-dev libgmock-dev clang-format python3-grpcio python3-protobuf openssl
  libxml2-utils)
sanitizer_packages=(clang libclang-rt-dev lld llvm)
guest_packages=(qemu-system-x86 cpio xz-utils kmod python3)
libvirt_packages=(libvirt-daemon libvirt-daemon-system libvirt-clients gnuplot-nox)

# Options of every build folder of the scripts, and of the one that the demo and the tests share: so
# neither compiles again what the other has. Up to 32 sources of a target are compiled as one,
# because half of what a source takes is headers: sluiced's 35 take 38 CPU seconds so, and 54 by
# eight.
shared_options=(unity=on unity_size=32 b_pch=true "werror=$werror" fuzz=false benchmarks=false
  kubernetes=enabled)
# GCC looks for unused memory only once it has taken 1 GB, which most sources never do: that saves a
# tenth of the compiling, for up to 0.8 GB a compiler.
no_collection=--param=ggc-min-heapsize=1000000
release_options=("${shared_options[@]}" optimization=2 debug=false b_sanitize=none
  cpp_args=$no_collection)

# configure FOLDER OPTION=VALUE...: the folder has these options afterwards, whatever it had.
configure() {
  python3 "$root/scripts/lib/build_folder.py" "$1" "$root" "${@:2}"
}

# build FOLDER [TARGET...]: builds everything, or the targets, and says how far it is. Compilers are
# nice to what else runs.
build() {
  local dir=$1 line last=-100 began=$SECONDS
  shift
  say "building in ${dir#"$root"/}"
  # A line now and then; whatever is no progress (warnings, errors) in full.
  nice ninja -C "$dir" -j "$jobs" "$@" | while IFS= read -r line; do
    case $line in
      \[*)
        [ $((SECONDS - last)) -ge 15 ] || continue
        last=$SECONDS
        printf '          %s %s\n' "${line%%]*}]" "$(minutes $((SECONDS - began)))" >&2
        ;;
      "ninja: Entering"* | "ninja: no work"*) ;;
      *) printf '%s\n' "$line" ;;
    esac
  done
  say "built in $(minutes $((SECONDS - began)))"
}

# minutes SECONDS: as M:SS min.
minutes() { printf '%d:%02d min' $(($1 / 60)) $(($1 % 60)); }

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Compiles every program of ../programs with nvcc, runs each as sm_75 and as sm_90 on the
# libcuda.so.1 of the folder given (the software GPU's of a build, or NVIDIA's), and writes the PTX
# and the traces of the cases to a folder. A case whose results are wrong leaves no trace, and then
# nothing is written.
#
#   record.sh LIBDIR --out FOLDER [--stamp FILE] [--timing]
#   record.sh LIBDIR PROGRAM...          runs those programs, writes nothing
#
# --timing: ../timing for sm_90, without running kernels. --stamp: touched at the end. What it
# writes holds PTX of NVIDIA's headers, under their licence: it stays out of the source tree.
set -eu

usage() {
  echo "usage: record.sh LIBDIR (--out FOLDER [--stamp FILE] [--timing] | PROGRAM...)" >&2
  exit 2
}
[ $# -ge 2 ] || usage
lib=$(cd "$1" && pwd)
shift
out= stamp= timing=no
while :; do
  case ${1-} in
    --out) mkdir -p "$2"; out=$(cd "$2" && pwd); shift 2 ;;
    --stamp) stamp=$(cd "$(dirname "$2")" && pwd)/$(basename "$2"); shift 2 ;;
    --timing) timing=yes; shift ;;
    --*) usage ;;
    *) break ;;
  esac
done
here=$(cd "$(dirname "$0")/.." && pwd)
nvcc=${NVCC:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
include=$(dirname "$(dirname "$nvcc")")/include
[ -x "$nvcc" ] || { echo "record.sh: nvcc not found" >&2; exit 1; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM
mkdir "$work/75" "$work/90" "$work/pack" "$work/lib"
# The software GPU's library is known by a name of its own; programs ask for libcuda.so.1.
for name in libcuda.so.1 libsluice-softcuda.so; do
  [ -e "$lib/$name" ] && ln -s "$lib/$name" "$work/lib/$name"
done
[ -e "$work/lib/libcuda.so.1" ] || ln -s libsluice-softcuda.so "$work/lib/libcuda.so.1"

for source in cudart trace_writer; do
  c++ -std=c++20 -O1 -I"$here/../.." -I"$include" -c -o "$work/$source.o" "$here/record/$source.cc"
done
deliver() {  # this folder's files, in place of what was there
  rm -f "$out"/*.ptx "$out"/*.trace
  cp ./*.ptx ./*.trace "$out"
  [ -z "$stamp" ] || touch "$stamp"
}
if [ $timing = yes ]; then
  cd "$here/timing"
  # shellcheck disable=SC2046
  "$nvcc" $(cat nvcc.flags) -c -o "$work/cub_timing.o" cub_timing.cu
  c++ -o "$work/cub_timing" "$work/cub_timing.o" "$work/cudart.o" "$work/trace_writer.o" \
    "$work/lib/libcuda.so.1"
  # The host side chooses grids by the GPU's shape.
  SLUICE_SOFT_MODEL=h200 SLUICE_SOFT_MEMORY=16G SLUICE_RECORD_DRY=1 SLUICE_RECORD_ARCH=90 \
    SLUICE_RECORD_DIR=$work/pack LD_LIBRARY_PATH=$work/lib "$work/cub_timing"
  cd "$work/pack"
  deliver
  exit 0
fi
all=no
if [ $# -eq 0 ]; then
  all=yes
  set -- $(cd "$here/programs" && ls *.cu | sed 's/\.cu$//')
fi
cd "$here/programs"  # so that no path of this machine can enter the text
status=0
for program; do
  # shellcheck disable=SC2046  # the flags are words
  "$nvcc" $(cat nvcc.flags) -c -o "$work/$program.o" "$program.cu"
  c++ -o "$work/$program" "$work/$program.o" "$work/cudart.o" "$work/trace_writer.o" \
    "$work/lib/libcuda.so.1"
  for arch in 75 90; do
    if SLUICE_RECORD_ARCH=$arch SLUICE_RECORD_DIR=$work/$arch LD_LIBRARY_PATH=$work/lib \
      "$work/$program"; then
      echo "$program sm_$arch: right"
    else
      echo "$program sm_$arch: FAILED" >&2
      status=1
    fi
  done
done
[ $all = yes ] || exit $status
[ $status = 0 ] || { echo "record.sh: nothing written" >&2; exit 1; }

cp "$work"/75/*.ptx "$work"/90/*.ptx "$work/pack"
turn=0  # every other case from the other architecture
for trace in "$work"/75/*.trace; do
  name=$(basename "$trace")
  if [ $turn = 0 ]; then cp "$trace" "$work/pack"; else cp "$work/90/$name" "$work/pack"; fi
  turn=$((1 - turn))
done
cd "$work/pack"
deliver

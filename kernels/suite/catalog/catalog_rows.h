// SPDX-License-Identifier: Apache-2.0
// The table of the suite: one row per benchmark, which is all that has to be written outside the
// benchmark's own files. SLUICE_SUITE_ROWS(X) expands X(name, papers, gpu_scale) for each; the
// benchmark defines `Case case_<name>(const CaseOptions&)`.
//
// papers: E EffiSha, F FLEP, R FRS, P "Enabling Preemptive Multiprogramming on GPUs"; empty: ours.
// gpu_scale: see Row. Chosen by arithmetic (bytes moved, operations), not yet all measured.
#pragma once

#include "kernels/suite/catalog/catalog.h"

#define SLUICE_SUITE_ROWS(X) \
  X(triad, "E", 4096)        \
  X(matmul, "FR", 8192)      \
  X(reduction, "ER", 8192)   \
  X(stencil2d, "EP", 16384)  \
  X(histogram, "RP", 4096)   \
  X(md5, "E", 8192)          \
  SLUICE_SUITE_MORE_ROWS(X)

// Each in files of its own, in papers/ or scans/: cuda/.../<name>.cu, ptx/.../<name>.ptx,
// cases/.../<name>.cc.
#define SLUICE_SUITE_MORE_ROWS(X) \
  X(vecadd, "FR", 8192)           \
  X(bfs, "E", 4096)               \
  X(fft, "E", 4096)               \
  X(md, "EF", 4096)               \
  X(backprop, "E", 2000)          \
  X(scan, "E", 8192)              \
  X(sort, "E", 8192)              \
  X(spmv, "EFRP", 4096)           \
  X(cfd, "F", 16384)              \
  X(nn, "F", 8192)                \
  X(pathfinder, "FR", 4096)       \
  X(particlefilter, "F", 1024)    \
  X(blackscholes, "R", 16384)     \
  X(convolution, "R", 8192)       \
  X(canny, "R", 16384)            \
  X(lbm, "P", 8192)               \
  X(mriq, "P", 2048)              \
  X(sad, "P", 16384)              \
  X(sgemm, "P", 8192)             \
  X(cutcp, "P", 2048)             \
  X(tpacf, "P", 2048)             \
  X(lookback, "", 8192)           \
  X(select, "", 8192)             \
  X(reducebykey, "", 8192)        \
  X(onesweep, "", 8192)           \
  X(mergesort, "", 8192)

namespace sluice::suite {

#define SLUICE_SUITE_DECLARE(name, papers, gpu_scale) Case case_##name(const CaseOptions& options);
SLUICE_SUITE_ROWS(SLUICE_SUITE_DECLARE)
#undef SLUICE_SUITE_DECLARE

}  // namespace sluice::suite

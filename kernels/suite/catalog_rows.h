// The table of the suite: one row per benchmark, which is all that has to be written outside the
// benchmark's own files. SLUICE_SUITE_ROWS(X) expands X(name, papers, gpu_scale) for each; the
// benchmark defines `Case case_<name>(const CaseOptions&)`.
//
// papers: E EffiSha, F FLEP, R FRS, P "Enabling Preemptive Multiprogramming on GPUs".
// gpu_scale: see Row. Chosen by arithmetic (bytes moved, operations), not yet all measured.
#pragma once

#include "kernels/suite/catalog.h"

#define SLUICE_SUITE_ROWS(X) \
  X(triad, "E", 16384)       \
  X(matmul, "FR", 512)       \
  X(reduction, "ER", 8192)   \
  X(stencil2d, "E", 16384)   \
  X(histogram, "R", 8192)    \
  X(md5, "E", 2048)          \
  SLUICE_SUITE_MORE_ROWS(X)

// Each in a file of its own: <name>.cu, <name>.ptx, case_<name>.cc.
#define SLUICE_SUITE_MORE_ROWS(X)

namespace sluice::suite {

#define SLUICE_SUITE_DECLARE(name, papers, gpu_scale) Case case_##name(const CaseOptions& options);
SLUICE_SUITE_ROWS(SLUICE_SUITE_DECLARE)
#undef SLUICE_SUITE_DECLARE

}  // namespace sluice::suite

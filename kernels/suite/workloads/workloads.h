// SPDX-License-Identifier: Apache-2.0
// The six workloads of the suite, each in a file of its own named like its kernel. All throw
// UsageError where the options ask for what the kernel cannot do.
#pragma once

#include <memory>

#include "kernels/suite/workloads/workload.h"

namespace sluice::suite {

std::unique_ptr<Workload> make_triad(const Options& options);
std::unique_ptr<Workload> make_matmul(const Options& options);
std::unique_ptr<Workload> make_reduction(const Options& options);
std::unique_ptr<Workload> make_stencil2d(const Options& options);
std::unique_ptr<Workload> make_histogram(const Options& options);
std::unique_ptr<Workload> make_md5(const Options& options);

}  // namespace sluice::suite

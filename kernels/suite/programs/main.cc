// SPDX-License-Identifier: Apache-2.0
// main() of the six programs sluice-suite-<name>; the build says which.
#include "kernels/suite/programs/runner.h"
#include "kernels/suite/workloads/workloads.h"

#define SLUICE_SUITE_JOIN(a, b) a##b
#define SLUICE_SUITE_MAKER(name) SLUICE_SUITE_JOIN(make_, name)
#define SLUICE_SUITE_STRING(name) #name
#define SLUICE_SUITE_NAME(name) SLUICE_SUITE_STRING(name)

int main(int argc, char** argv) {
  return sluice::suite::run_program(SLUICE_SUITE_NAME(SLUICE_SUITE_WORKLOAD),
                                    sluice::suite::SLUICE_SUITE_MAKER(SLUICE_SUITE_WORKLOAD), argc,
                                    argv);
}

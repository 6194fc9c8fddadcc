// SPDX-License-Identifier: Apache-2.0
// sluice-suite-probe: what the first CUDA device says of itself; the first thing to run in a guest.
// One line "key: value" each on stdout. Exit: 0, or 3 where a CUDA call failed.
#include <cstdio>

#include "kernels/suite/programs/driver.h"

namespace {

using sluice::suite::check;
using sluice::suite::Context;
using sluice::suite::DriverError;

int attribute(CUdevice device, CUdevice_attribute which) {
  int value = 0;
  SLUICE_SUITE_CALL(cuDeviceGetAttribute(&value, which, device));
  return value;
}

void probe() {
  const Context context;
  int version = 0;
  SLUICE_SUITE_CALL(cuDriverGetVersion(&version));
  std::size_t total = 0;
  SLUICE_SUITE_CALL(cuDeviceTotalMem(&total, context.device()));
  const CUdevice device = context.device();
  std::printf("device: %s\n", context.device_name().c_str());
  std::printf("capability: %d.%d\n",
              attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
              attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
  std::printf("memory: %llu\n", static_cast<unsigned long long>(total));
  std::printf("sms: %d\n", attribute(device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
  std::printf("driver: %d.%d\n", version / 1000, version % 1000 / 10);
}

}  // namespace

int main() {
  try {
    probe();
    return 0;
  } catch (const DriverError& error) {
    std::fprintf(stderr, "probe: %s\n", error.what());
    return 3;
  }
}

// SPDX-License-Identifier: Apache-2.0
// Does nothing. What a launch costs is what is left (tests/bench/launch_overhead).
extern "C" __global__ void empty() {}

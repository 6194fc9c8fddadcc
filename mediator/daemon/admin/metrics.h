// SPDX-License-Identifier: Apache-2.0
// The daemon's figures in Prometheus' text format, version 0.0.4
// (prometheus.io/docs/instrumenting/exposition_formats), for `sluicectl metrics`. There is no
// listener of its own: what is not open needs no defence, and node_exporter's textfile collector
// reads files.
#pragma once

#include <string>

namespace sluice {

class Daemon;

// Times in seconds; counters only grow while sluiced lives. What workers report is marked so:
// hints.
std::string metrics_text(Daemon& daemon);

}  // namespace sluice

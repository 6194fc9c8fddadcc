// SPDX-License-Identifier: Apache-2.0
// SvgPlot: bars of several policies side by side, as SVG text: one panel for each figure. No
// library, no font files, no scripts; readable in light and dark viewers. Pure.
#pragma once

#include <string>
#include <vector>

#include "policies/sim/metrics.h"

namespace sluice::policy::sim {

struct Panel {
  std::string title;                        // with its unit and which way is better
  std::vector<std::string> groups;          // along x
  std::vector<std::vector<double>> values;  // [series][group]; NaN or negative: no bar
};
// series: names, in the order of the colours.
std::string svg_plot(const std::string& title, const std::vector<std::string>& series,
                     const std::vector<Panel>& panels);
// What `sluice-sim --plot` draws: NTT by program, then the summary figures.
std::string svg_of_reports(const std::vector<Report>& reports);

}  // namespace sluice::policy::sim

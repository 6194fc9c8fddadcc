// SPDX-License-Identifier: Apache-2.0
#include "policies/sim/files/svg_plot.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace sluice::policy::sim {
namespace {

// Okabe and Ito's colours, which people who see colours differently can distinguish.
constexpr const char* kColours[] = {"#0072b2", "#e69f00", "#009e73", "#d55e00",
                                    "#cc79a7", "#56b4e9", "#f0e442", "#777777",
                                    "#332288", "#88ccee", "#44aa99", "#aa4499"};
constexpr double kWidth = 900, kPanel = 240, kLeft = 70, kRight = 20, kTop = 60;

std::string escaped(const std::string& s) {
  std::string out;
  for (char c : s) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '"')
      out += "&quot;";
    else if (static_cast<unsigned char>(c) < 32)
      out += ' ';
    else
      out += c;
  }
  return out;
}

template <class... T>
void put(std::string& out, const char* format, T... values) {
  char text[400];
  const int n = std::snprintf(text, sizeof text, format, values...);
  out.append(text, static_cast<size_t>(std::clamp(n, 0, static_cast<int>(sizeof text) - 1)));
}

void label(std::string& out, double x, double y, const char* anchor, int size,
           const std::string& text) {
  put(out, "<text x='%.1f' y='%.1f' text-anchor='%s' font-size='%d'>", x, y, anchor, size);
  out += escaped(text) + "</text>\n";
}

// 1, 2 or 5 times a power of ten, so that about four lines fit below `most`.
double step_for(double most) {
  const double raw = most / 4, power = std::pow(10, std::floor(std::log10(raw)));
  for (double m : {1.0, 2.0, 5.0})
    if (raw <= m * power) return m * power;
  return 10 * power;
}

void put_legend(std::string& out, const std::vector<std::string>& series) {
  double x = kLeft;
  for (size_t i = 0; i < series.size(); ++i) {
    put(out, "<rect x='%.1f' y='32' width='10' height='10' fill='%s'/>\n", x,
        kColours[i % std::size(kColours)]);
    label(out, x + 14, 41, "start", 12, series[i]);
    x += 30 + 7.5 * static_cast<double>(series[i].size());
  }
}

// The end of a panel's axis, which is a whole number of `step`s.
double axis_end(const Panel& panel, double& step) {
  double most = 0;
  for (const auto& row : panel.values)
    for (double v : row)
      if (std::isfinite(v)) most = std::max(most, v);
  if (most <= 0) most = 1;
  step = step_for(most);
  return std::ceil(most / step) * step;
}

void put_panel(std::string& out, double top, const std::vector<std::string>& series,
               const Panel& panel) {
  const double bottom = top + kPanel - 60, plot = kPanel - 90;
  double step;
  const double most = axis_end(panel, step);
  label(out, kLeft, top + 14, "start", 13, panel.title);
  for (double v = 0; v <= most * 1.0001; v += step) {
    const double y = bottom - plot * v / most;
    put(out, "<line x1='%.1f' x2='%.1f' y1='%.1f' y2='%.1f' stroke='#ddd'/>\n", kLeft,
        kWidth - kRight, y, y);
    char number[32];
    std::snprintf(number, sizeof number, "%g", v);
    label(out, kLeft - 6, y + 4, "end", 11, number);
  }
  const double group =
      (kWidth - kLeft - kRight) / static_cast<double>(std::max<size_t>(panel.groups.size(), 1));
  const double bar = group * 0.8 / static_cast<double>(std::max<size_t>(series.size(), 1));
  for (size_t g = 0; g < panel.groups.size(); ++g) {
    const double left = kLeft + group * (static_cast<double>(g) + 0.1);
    for (size_t s = 0; s < panel.values.size(); ++s) {
      if (g >= panel.values[s].size()) continue;
      const double v = panel.values[s][g];
      if (!(v >= 0) || !std::isfinite(v)) continue;
      const double h = plot * v / most;
      put(out, "<rect x='%.1f' y='%.1f' width='%.1f' height='%.1f' fill='%s'><title>",
          left + bar * static_cast<double>(s), bottom - h, std::max(bar - 1, 0.5), h,
          kColours[s % std::size(kColours)]);
      out += escaped(series[s]) + " ";
      put(out, "%.4g</title></rect>\n", v);
    }
    const size_t fits = static_cast<size_t>(std::max(3.0, group / 6));
    label(out, left + group * 0.4, bottom + 16, "middle", 11, panel.groups[g].substr(0, fits));
  }
}

}  // namespace

std::string svg_plot(const std::string& title, const std::vector<std::string>& series,
                     const std::vector<Panel>& panels) {
  std::string out;
  const double height = kTop + kPanel * static_cast<double>(panels.size()) + 20;
  put(out,
      "<svg xmlns='http://www.w3.org/2000/svg' width='%.0f' height='%.0f' viewBox='0 0 %.0f %.0f' "
      "font-family='sans-serif' fill='#222'>\n<rect width='100%%' height='100%%' fill='#fff'/>\n",
      kWidth, height, kWidth, height);
  label(out, kLeft, 22, "start", 16, title);
  put_legend(out, series);
  double top = kTop;
  for (const Panel& panel : panels) {
    put_panel(out, top, series, panel);
    top += kPanel;
  }
  return out + "</svg>\n";
}

std::string svg_of_reports(const std::vector<Report>& reports) {
  if (reports.empty()) return svg_plot("nothing", {}, {});
  std::vector<std::string> series;
  Panel ntt{"normalised turnaround time of each program (lower is better)", {}, {}};
  Panel summary{"ANTT, DNTT (lower is better); STP, 10 x fairness (higher is better)",
                {"ANTT", "DNTT", "STP", "10 x fairness"},
                {}};
  Panel share{
      "share error in percent, 100 x (1 - Jain index), loss of throughput in percent (lower is "
      "better)",
      {"worst window", "whole time", "Jain", "lost"},
      {}};
  constexpr size_t kMost = 40;  // more programs than this cannot be read
  for (const auto& [name, value] : reports[0].mean.ntt)
    if (ntt.groups.size() < kMost) ntt.groups.push_back(name);
  for (const Report& r : reports) {
    const Metrics& m = r.mean;
    series.push_back(r.policy);
    std::vector<double> values;
    for (const std::string& g : ntt.groups) {
      const auto it =
          std::find_if(m.ntt.begin(), m.ntt.end(), [&](const auto& x) { return x.first == g; });
      values.push_back(it != m.ntt.end() && it->second > 0 ? it->second : -1);
    }
    ntt.values.push_back(values);
    summary.values.push_back({m.antt, m.dntt, m.stp, 10 * m.fairness});
    share.values.push_back({100 * m.share_error.max, 100 * m.share_error.total, 100 * (1 - m.jain),
                            100 * (1 - m.throughput)});
  }
  return svg_plot("sluice-sim: workload " + reports[0].workload, series, {ntt, summary, share});
}

}  // namespace sluice::policy::sim

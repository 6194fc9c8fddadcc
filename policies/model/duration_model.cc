// SPDX-License-Identifier: Apache-2.0
#include "policies/model/duration_model.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <vector>

namespace sluice::policy {
namespace {

constexpr double kMaxSmNs = 0x1p50;
constexpr uint64_t kMaxInput = 1ull << 38;  // beyond any GPU's memory; keeps the sums solvable
// Each launch weighs this much less than the next, so that a kernel whose data changed is learnt
// anew within some hundreds of launches.
constexpr double kForget = 0.995;
// The penalty, in samples: small, because features are scaled to about 1, and enough that features
// that never vary stay without a say.
constexpr double kRidge = 1e-3;
constexpr std::string_view kFormat = "sluice-duration-model 1";

}  // namespace

// Scaled to about 0..1 for usual launches. The product of grid and block is the number of threads:
// with it alone the usual kernel is predicted.
DurationModel::Vector DurationModel::features(const LaunchShape& s) {
  const double grid = s.grid_blocks / 65536.0, block = s.block_threads / 1024.0;
  const double input = static_cast<double>(std::min(s.input_bytes, kMaxInput)) / 0x1p24;
  return {1.0, grid, block, s.shared_bytes / 65536.0, input, grid * block};
}

void DurationModel::solve(const Kernel& k) {
  // (X^T X + ridge I) beta = X^T (y - mean), by Cholesky; the constant is penalised like the
  // others, because the mean is taken off first.
  double l[kFeatures][kFeatures] = {};
  Vector z{};
  const Vector centre = [&] {
    Vector v = k.xy;
    for (int i = 0; i < kFeatures; ++i) v[i] -= k.mean * k.xx[i * (i + 1) / 2];  // sum of x_i * 1
    return v;
  }();
  for (int i = 0; i < kFeatures; ++i) {
    for (int j = 0; j <= i; ++j) {
      double sum = k.xx[i * (i + 1) / 2 + j] + (i == j ? kRidge : 0);
      for (int m = 0; m < j; ++m) sum -= l[i][m] * l[j][m];
      if (i == j)
        l[i][i] = std::sqrt(std::max(sum, kRidge * 1e-3));
      else
        l[i][j] = sum / l[j][j];
    }
  }
  for (int i = 0; i < kFeatures; ++i) {
    double sum = centre[i];
    for (int m = 0; m < i; ++m) sum -= l[i][m] * z[m];
    z[i] = sum / l[i][i];
  }
  for (int i = kFeatures; i-- > 0;) {
    double sum = z[i];
    for (int m = i + 1; m < kFeatures; ++m) sum -= l[m][i] * k.beta[m];
    k.beta[i] = sum / l[i][i];
  }
  k.solved = true;
}

std::optional<uint64_t> DurationModel::predict(Key kernel, const LaunchShape& shape) const {
  const auto it = kernels_.find(kernel);
  if (it == kernels_.end()) return std::nullopt;
  const Kernel& k = it->second;
  if (!k.solved) solve(k);
  const Vector x = features(shape);
  double y = k.mean;
  for (int i = 0; i < kFeatures; ++i) y += k.beta[i] * x[i];
  // Far outside what was seen a line says anything; a tenth of the mean is the least that is said.
  if (!(y > k.mean / 10)) y = k.mean / 10;
  return static_cast<uint64_t>(std::min(y, kMaxSmNs));
}

void DurationModel::learn(Key kernel, const LaunchShape& shape, uint64_t sm_ns) {
  if (!kernels_.contains(kernel) && kernels_.size() >= kMaxKernels) return;
  const double y = std::min(static_cast<double>(sm_ns), kMaxSmNs);
  if (const auto was = predict(kernel, shape); was && y > 0) {
    Kernel& k = kernels_[kernel];
    const double e = std::min(std::abs(static_cast<double>(*was) / y - 1), 100.0);
    k.error += (e - k.error) / std::min(static_cast<double>(k.samples), 32.0);
  }
  Kernel& k = kernels_[kernel];
  const Vector x = features(shape);
  for (int i = 0; i < kFeatures; ++i) {
    for (int j = 0; j <= i; ++j) {
      double& a = k.xx[i * (i + 1) / 2 + j];
      a = a * kForget + x[i] * x[j];
    }
    k.xy[i] = k.xy[i] * kForget + x[i] * y;
  }
  k.weight = k.weight * kForget + 1;
  k.mean += (y - k.mean) / k.weight;
  ++k.samples;
  k.solved = false;
}

uint64_t DurationModel::samples(Key kernel) const {
  const auto it = kernels_.find(kernel);
  return it == kernels_.end() ? 0 : it->second.samples;
}
double DurationModel::error(Key kernel) const {
  const auto it = kernels_.find(kernel);
  return it == kernels_.end() ? 0 : it->second.error;
}

std::string DurationModel::save() const {
  std::vector<Key> keys;
  for (const auto& [key, k] : kernels_) keys.push_back(key);
  std::sort(keys.begin(), keys.end());
  std::string text(kFormat);
  text += '\n';
  char number[40];
  const auto put = [&](double d) {
    text.append(number, static_cast<size_t>(std::snprintf(number, sizeof number, " %a", d)));
  };
  for (Key key : keys) {
    const Kernel& k = kernels_.at(key);
    text.append(number,
                static_cast<size_t>(std::snprintf(number, sizeof number, "%016llx %llu",
                                                  static_cast<unsigned long long>(key),
                                                  static_cast<unsigned long long>(k.samples))));
    put(k.mean), put(k.weight), put(k.error);
    for (double d : k.xx) put(d);
    for (double d : k.xy) put(d);
    text += '\n';
  }
  return text;
}

Result<void> DurationModel::restore(std::string_view text) {
  size_t line_number = 0;
  const auto fail = [&](const char* what) {
    return Error{0, "duration model, line " + std::to_string(line_number) + ": " + what};
  };
  std::unordered_map<Key, Kernel> kernels;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == text.npos ? text.size() : end + 1);
    if (++line_number == 1) {
      if (line != kFormat) return fail("not a duration model of this version");
      continue;
    }
    const auto word = [&] {
      while (!line.empty() && line.front() == ' ') line.remove_prefix(1);
      const std::string_view w = line.substr(0, line.find(' '));
      line.remove_prefix(w.size());
      return w;
    };
    const auto number = [&](double& d) {
      const std::string w(word());
      char* stop = nullptr;
      d = std::strtod(w.c_str(), &stop);
      return !w.empty() && *stop == 0 && std::isfinite(d);
    };
    const auto whole = [&](uint64_t& n, int base) {
      const std::string_view w = word();
      const auto [stop, error] = std::from_chars(w.data(), w.data() + w.size(), n, base);
      return error == std::errc() && stop == w.data() + w.size() && !w.empty();
    };
    Key key = 0;
    Kernel k;
    if (!whole(key, 16) || !whole(k.samples, 10)) return fail("a kernel's key or count is wrong");
    bool good = number(k.mean) && number(k.weight) && number(k.error);
    for (double& d : k.xx) good = good && number(d);
    for (double& d : k.xy) good = good && number(d);
    if (!good || !word().empty()) return fail("a number is missing, wrong or too many");
    if (k.samples == 0 || !(k.weight > 0) || k.mean < 0 || k.mean > kMaxSmNs)
      return fail("a number is out of its range");
    if (kernels.size() >= kMaxKernels) return fail("too many kernels");
    if (!kernels.emplace(key, k).second) return fail("a kernel is there twice");
  }
  if (line_number == 0) return fail("empty");
  kernels_ = std::move(kernels);
  return {};
}

void TaskRate::observe(uint32_t tasks, uint64_t sm_ns) {
  if (tasks == 0) return;
  const double now = static_cast<double>(sm_ns) / tasks;
  // Half of the old: tasks of one launch resemble their neighbours more than the first ones.
  rate_ = rate_ > 0 ? rate_ + (now - rate_) / 2 : now;
}

void PreemptionCost::observe(uint64_t ns) {
  ++count_;
  mean_ += (static_cast<double>(ns) - mean_) / static_cast<double>(std::min<uint64_t>(count_, 50));
}

}  // namespace sluice::policy

// SPDX-License-Identifier: Apache-2.0
// The host side of histogram.cu: bins += histogram of bytes under a mask; in a chain the bins
// become the first words of the next launch's input.
#include <algorithm>

#include "kernels/suite/histogram.ptx.h"
#include "kernels/suite/workloads/reference.h"
#include "kernels/suite/workloads/workloads.h"

namespace sluice::suite {

namespace {

constexpr std::uint32_t kThreads = 128;       // as in histogram.cu
constexpr std::uint64_t kWordsPerThread = 2;  // while the grid grows with the size
constexpr std::uint64_t kMaxBlocks =
    32768;  // then threads get more words: merging costs 256 atomics
constexpr std::uint64_t kDefaultBytes = 2 * 1024 * 1024;

std::uint32_t mask(std::uint64_t launch) { return static_cast<std::uint32_t>(launch % 251); }

class Histogram final : public Workload {
 public:
  explicit Histogram(const Options& options) {
    const std::uint64_t bytes =
        options.size != 0 ? options.size : size_of(options, kDefaultBytes / 4) * 4;
    if (bytes % sizeof(std::uint32_t) != 0) throw UsageError("--size must be a multiple of 4");
    words_.resize(bytes / sizeof(std::uint32_t));
    Generator generator(options.seed);
    // The smaller of two random bytes: a distribution with a slope, so that a wrong mask shows.
    for (std::uint32_t& word : words_) {
      const std::uint64_t bits = generator.next();
      word = 0;
      for (unsigned shift = 0; shift < 32; shift += 8) {
        const auto one = static_cast<std::uint32_t>(bits >> shift) & 0xff;
        const auto other = static_cast<std::uint32_t>(bits >> (32 + shift)) & 0xff;
        word |= std::min(one, other) << shift;
      }
    }
    reference_histogram(counts_, words_, 0);
  }

  const char* name() const override { return "histogram"; }
  const char* ptx() const override { return kHistogramPtx; }
  std::uint64_t size() const override { return words_.size() * sizeof(std::uint32_t); }
  LaunchShape shape() const override {
    const std::uint64_t per_block = kThreads * kWordsPerThread;
    const std::uint64_t blocks = (words_.size() + per_block - 1) / per_block;
    return {.grid_x = static_cast<std::uint32_t>(std::min(blocks, kMaxBlocks)),
            .block_x = kThreads};
  }
  std::vector<std::span<const std::byte>> inputs() const override {
    return {std::as_bytes(std::span(words_))};
  }
  std::size_t output_bytes() const override { return kHistogramBins * sizeof(std::uint32_t); }
  std::size_t chain_bytes() const override { return std::min<std::size_t>(output_bytes(), size()); }
  bool accumulates() const override { return true; }
  void arguments(Arguments& arguments, std::uint64_t out, std::span<const std::uint64_t> inputs,
                 std::uint64_t launch) const override {
    arguments.add(out);
    arguments.add(inputs[0]);
    arguments.add(mask(launch));
    arguments.add(std::uint64_t{words_.size()});
  }
  void advance(std::span<std::byte> output, std::uint64_t first, std::uint64_t chain) override {
    const auto bins = as_elements<std::uint32_t>(output).first<kHistogramBins>();
    // Counts of the words that a chain leaves alone; a mask only permutes the bins.
    const std::size_t changed = chain == 1 ? 0 : chain_bytes() / sizeof(std::uint32_t);
    std::vector<std::uint32_t> head(words_.begin(),
                                    words_.begin() + static_cast<std::ptrdiff_t>(changed));
    std::array<std::uint32_t, kHistogramBins> in_head{};
    reference_histogram(in_head, head, 0);
    for (std::uint64_t i = 0; i < chain; ++i) {
      const std::uint32_t by = mask(first + i);
      for (std::uint32_t value = 0; value < kHistogramBins; ++value) {
        bins[value ^ by] += counts_[value] - in_head[value];
      }
      reference_histogram(bins, head, by);
      if (changed != 0) std::memcpy(head.data(), bins.data(), chain_bytes());
    }
  }

 protected:
  Element element() const override { return Element::kU32; }

 private:
  std::vector<std::uint32_t> words_;
  std::array<std::uint32_t, kHistogramBins> counts_{};
};

}  // namespace

std::unique_ptr<Workload> make_histogram(const Options& options) {
  return std::make_unique<Histogram>(options);
}

}  // namespace sluice::suite

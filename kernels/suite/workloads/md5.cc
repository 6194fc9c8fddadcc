// SPDX-License-Identifier: Apache-2.0
// The host side of md5.cu: digests of messages of 32 bytes; in a chain each digest is the first
// half of the next launch's message.
#include <algorithm>

#include "kernels/suite/md5.ptx.h"
#include "kernels/suite/workloads/reference.h"
#include "kernels/suite/workloads/workloads.h"

namespace sluice::suite {

namespace {

constexpr std::uint64_t kDefaultSize = 64 * 1024;
// Up to this many messages a block is one warp, so that a small run still has many block-tasks.
constexpr std::uint64_t kSmall = 64 * 1024;
constexpr std::uint64_t kDigestBytes = 16;

class Md5 final : public Workload {
 public:
  explicit Md5(const Options& options) : n_(size_of(options, kDefaultSize)) {
    (void)shape();
    Generator generator(options.seed);
    salt_ = generator.next();
    in_.resize(n_ * kDigestBytes / sizeof(std::uint32_t));
    for (std::uint32_t& word : in_) word = static_cast<std::uint32_t>(generator.next() >> 32);
    if (options.chain == 1 && output_bytes() <= kMaxKeptBytes) {
      for (std::uint64_t i = 0; i < kKeptVariants; ++i) {
        kept_.emplace_back(in_.size());
        reference_md5(kept_.back(), in_, salt_ + i);
      }
    }
  }

  const char* name() const override { return "md5"; }
  const char* ptx() const override { return kMd5Ptx; }
  std::uint64_t size() const override { return n_; }
  LaunchShape shape() const override {
    const std::uint32_t threads = n_ <= kSmall ? 32 : 128;
    return {.grid_x = blocks_for(n_, threads), .block_x = threads};
  }
  std::vector<std::span<const std::byte>> inputs() const override {
    return {std::as_bytes(std::span(in_))};
  }
  std::size_t output_bytes() const override { return n_ * kDigestBytes; }
  std::size_t chain_bytes() const override { return output_bytes(); }
  void arguments(Arguments& arguments, std::uint64_t out, std::span<const std::uint64_t> inputs,
                 std::uint64_t launch) const override {
    arguments.add(out);
    arguments.add(inputs[0]);
    arguments.add(salt_ + (kept_.empty() ? launch : launch % kept_.size()));
    arguments.add(n_);
  }
  void advance(std::span<std::byte> output, std::uint64_t first, std::uint64_t chain) override {
    const std::span<std::uint32_t> out = as_elements<std::uint32_t>(output);
    if (!kept_.empty()) {
      std::ranges::copy(kept_[first % kept_.size()], out.begin());
      return;
    }
    reference_md5(out, in_, salt_ + first);
    // In place: each message depends on its own digest only.
    for (std::uint64_t i = 1; i < chain; ++i) reference_md5(out, out, salt_ + first + i);
  }

 protected:
  Element element() const override { return Element::kU32; }

 private:
  std::uint64_t n_;
  std::uint64_t salt_;
  std::vector<std::uint32_t> in_;
  std::vector<std::vector<std::uint32_t>> kept_;  // results by variant, or empty
};

}  // namespace

std::unique_ptr<Workload> make_md5(const Options& options) {
  return std::make_unique<Md5>(options);
}

}  // namespace sluice::suite

// The host side of triad.cu: a = b + s c; in a chain the result is the next launch's b.
#include "kernels/suite/reference.h"
#include "kernels/suite/triad.ptx.h"
#include "kernels/suite/workloads.h"

namespace sluice::suite {

namespace {

constexpr std::uint32_t kThreads = 256;
constexpr std::uint64_t kDefaultSize = 256 * 1024;

// Another factor for each of a thousand launches in a row; with 10 bits, so that s * c is not exact
// in general and the fused rounding is exercised.
double factor(std::uint64_t launch) { return 1.0 + static_cast<double>(launch % 1021) * 0x1p-10; }

class Triad final : public Workload {
 public:
  explicit Triad(const Options& options) : n_(size_of(options, kDefaultSize)) {
    (void)blocks_for(n_, kThreads);
    Generator generator(options.seed);
    b_.resize(n_);
    c_.resize(n_);
    for (double& value : b_) value = generator.next_double();
    for (double& value : c_) value = generator.next_double();
  }

  const char* name() const override { return "triad"; }
  const char* ptx() const override { return kTriadPtx; }
  std::uint64_t size() const override { return n_; }
  LaunchShape shape() const override {
    return {.grid_x = blocks_for(n_, kThreads), .block_x = kThreads};
  }
  std::vector<std::span<const std::byte>> inputs() const override {
    return {std::as_bytes(std::span(b_)), std::as_bytes(std::span(c_))};
  }
  std::size_t output_bytes() const override { return n_ * sizeof(double); }
  std::size_t chain_bytes() const override { return output_bytes(); }
  void arguments(Arguments& arguments, std::uint64_t out, std::span<const std::uint64_t> inputs,
                 std::uint64_t launch) const override {
    arguments.add(out);
    arguments.add(inputs[0]);
    arguments.add(inputs[1]);
    arguments.add(factor(launch));
    arguments.add(n_);
  }
  void advance(std::span<std::byte> output, std::uint64_t first, std::uint64_t chain) override {
    const std::span<double> a = as_elements<double>(output);
    reference_triad(a, b_, c_, factor(first));
    // In place: each element depends on no other.
    for (std::uint64_t i = 1; i < chain; ++i) reference_triad(a, a, c_, factor(first + i));
  }

 protected:
  Element element() const override { return Element::kF64; }

 private:
  std::uint64_t n_;
  std::vector<double> b_, c_;
};

}  // namespace

std::unique_ptr<Workload> make_triad(const Options& options) {
  return std::make_unique<Triad>(options);
}

}  // namespace sluice::suite

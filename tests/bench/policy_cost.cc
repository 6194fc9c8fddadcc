// What one decision of a policy costs with 1,000 vGPUs and 10,000 launches waiting: every event that the
// simulator hands in is timed (less the cost of taking the time), and apart from them the reports of usage that
// come before each. By hand; one core.
//
//     policy_cost [VGPUS [LAUNCHES_EACH]]      default: 1000 10
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "policies/sim/engine.h"

using namespace sluice::policy;
using namespace sluice::policy::sim;
using Clock = std::chrono::steady_clock;

namespace {

uint64_t since(Clock::time_point t) {
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - t).count());
}

class Timed final : public Policy {
 public:
  explicit Timed(std::unique_ptr<Policy> p) : p_(std::move(p)) {}
  std::string_view name() const override { return p_->name(); }
  void on_vgpu_added(uint64_t t, VgpuId v, const VgpuShare& s, Actions& o) override { p_->on_vgpu_added(t, v, s, o); }
  void on_vgpu_changed(uint64_t t, VgpuId v, const VgpuShare& s, Actions& o) override { p_->on_vgpu_changed(t, v, s, o); }
  void on_vgpu_removed(uint64_t t, VgpuId v, Actions& o) override { p_->on_vgpu_removed(t, v, o); }
  void on_arrival(uint64_t t, VgpuId v, Actions& o) override { timed([&] { p_->on_arrival(t, v, o); }); }
  void on_idle(uint64_t t, VgpuId v, Actions& o) override { timed([&] { p_->on_idle(t, v, o); }); }
  void on_launch_queued(uint64_t t, const Launch& l, Actions& o) override {
    timed([&] { p_->on_launch_queued(t, l, o); });
  }
  void on_launch_done(uint64_t t, const Launch& l, Actions& o) override {
    timed([&] { p_->on_launch_done(t, l, o); });
  }
  void on_usage(uint64_t t, VgpuId v, const Usage& u) override {
    const auto begin = Clock::now();
    p_->on_usage(t, v, u);
    usage_ns += static_cast<double>(since(begin));
    ++usages;
  }
  void on_left(uint64_t t, VgpuId v, LeftReason w, Actions& o) override { timed([&] { p_->on_left(t, v, w, o); }); }
  void on_released(uint64_t t, VgpuId v, LaunchId l, SmRange s, LeftReason w, Actions& o) override {
    timed([&] { p_->on_released(t, v, l, s, w, o); });
  }
  void on_handover(uint64_t t, uint64_t c) override { timed([&] { p_->on_handover(t, c); }); }
  void on_wake(uint64_t t, Actions& o) override { timed([&] { p_->on_wake(t, o); }); }

  std::vector<uint32_t> ns;
  double usage_ns = 0;
  uint64_t usages = 0;

 private:
  template <class F>
  void timed(F&& call) {
    const auto begin = Clock::now();
    call();
    ns.push_back(static_cast<uint32_t>(std::min<uint64_t>(since(begin), 1'000'000'000)));
  }
  std::unique_ptr<Policy> p_;
};

}  // namespace

int main(int argc, char** argv) {
  const auto vgpus = static_cast<uint32_t>(argc > 1 ? std::atoi(argv[1]) : 1000);
  const auto each = static_cast<uint32_t>(argc > 2 ? std::atoi(argv[2]) : 10);
  Workload w;
  w.gpu.sm_count = 132;
  w.gpu.spatial = true;
  w.gpu.signal_ns = 3000;
  w.gpu.start_ns = 4000;
  Kernel k;
  k.name = "k";
  k.alone_ns = 1'000'000;
  k.alone_cv = 0.5;
  k.tasks = 10'000;
  k.blocks_per_sm = 8;
  w.kernels = {k};
  for (uint32_t v = 0; v < vgpus; ++v) {
    w.vgpus.push_back({"v" + std::to_string(v), {.weight = 1 + v % 1000, .priority = v % 4}, {}});
    for (uint32_t i = 0; i < each; ++i) {
      Program p;
      p.name = std::to_string(v) + "." + std::to_string(i);
      p.vgpu = v;
      p.steps = {{.kernel = 0}};
      p.arrival = i % 2 ? ArrivalKind::kBacklog : ArrivalKind::kClosed;
      p.think_ns = i % 2 ? 0 : 100'000;
      p.runs = 0;
      p.queue_depth = 2;
      w.programs.push_back(p);
    }
  }
  w.horizon_ns = 20'000'000'000;
  if (const std::string wrong = check_workload(w); !wrong.empty())
    return std::fprintf(stderr, "policy_cost: %s\n", wrong.c_str()), 1;

  std::vector<uint64_t> empty;  // what taking the time costs
  for (int i = 0; i < 10'000; ++i) {
    const auto begin = Clock::now();
    empty.push_back(since(begin));
  }
  std::nth_element(empty.begin(), empty.begin() + 5000, empty.end());
  const double clock_ns = static_cast<double>(empty[5000]);
  std::printf("%u vGPUs, %u launches; %.0f ns for taking the time are taken off\n", vgpus, vgpus * each, clock_ns);
  for (const Registration& row : registry()) {
    Workload x = w;
    if (!row.exclusive) x.gpu.preemptor = PreemptorKind::kProportional;
    Timed timed(row.make(engine_config(x)));
    timed.ns.reserve(4'000'000);
    (void)simulate(x, timed, {.preempts = row.preempts, .max_events = 200'000});
    if (timed.ns.empty()) continue;
    double sum = 0;
    for (uint32_t t : timed.ns) sum += t;
    const double n = static_cast<double>(timed.ns.size());
    const auto at = [&](double q) {
      const auto i = static_cast<std::ptrdiff_t>(q * (n - 1));
      std::nth_element(timed.ns.begin(), timed.ns.begin() + i, timed.ns.end());
      return std::max(timed.ns[static_cast<size_t>(i)] - clock_ns, 0.0);
    };
    std::printf("%-8s mean %7.0f ns  p50 %6.0f  p99 %7.0f  max %9.0f  (%zu decisions; a report %.0f ns)\n", row.name.data(),
                std::max(sum / n - clock_ns, 0.0), at(0.5), at(0.99), at(1), timed.ns.size(),
                timed.usages ? std::max(timed.usage_ns / static_cast<double>(timed.usages) - clock_ns, 0.0) : 0.0);
    std::fflush(stdout);
  }
  return 0;
}

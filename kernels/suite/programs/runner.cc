// SPDX-License-Identifier: Apache-2.0
#include "kernels/suite/programs/runner.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "kernels/suite/programs/driver.h"
#include "kernels/suite/workloads/reference.h"

namespace sluice::suite {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// One place in the queue, with what the unit in it works on.
struct Slot {
  DeviceBuffer out;
  DeviceBuffer own_input;  // chains only: input 0, which the chain overwrites
  Event done;              // the unit's last operation
  Event stepped, copied;   // chains only: a launch ended; its result is the next one's input
  CUstream stream = nullptr;
  bool busy = false;
  bool checked = false;              // whether to check when it is done
  bool poisoned = false;             // `out` has held poison since the last check
  std::vector<std::uint64_t> units;  // first launch numbers since `out` was poisoned
};

class Runner {
 public:
  Runner(Workload& workload, const Options& options, Report& report,
         const volatile std::sig_atomic_t& stop)
      : workload_(workload), options_(options), report_(report), stop_(stop) {}

  void run() {
    report_.device = context_.device_name();
    set_up();
    start_ = Clock::now();
    last_progress_ = start_;
    const std::uint64_t depth = slots_.size();
    const bool keep_last = options_.verify_every != 1;
    const std::uint64_t units_asked =
        options_.launches == 0 ? UINT64_MAX
                               : std::max<std::uint64_t>(1, options_.launches / options_.chain);
    // Unless every unit is checked anyway, the last ones are: in a round of their own, queued when
    // it is known that they are the last, so that their outputs are poisoned first.
    const std::uint64_t last_round = keep_last ? std::min(depth, units_asked) : 0;
    while (next_unit_ < units_asked - last_round && !time_is_over()) {
      queue_next(is_checked(next_unit_, options_.verify_every));
      std::this_thread::sleep_for(std::chrono::milliseconds(options_.pause_ms));
    }
    drain();
    for (std::uint64_t i = 0; i < last_round; ++i) queue_next(true);
    drain();
    report_.seconds = seconds_since(start_);
    if (report_.stopped_by.empty()) report_.stopped_by = "launches";
  }

 private:
  void set_up() {
    module_ = make_module(workload_.ptx());
    SLUICE_SUITE_CALL(cuModuleGetFunction(&function_, module_.get(), workload_.name()));
    for (const std::span<const std::byte> input : workload_.inputs()) {
      inputs_.push_back(make_device_buffer(input.size()));
      SLUICE_SUITE_CALL(cuMemcpyHtoD(inputs_.back().get(), input.data(), input.size()));
    }
    for (std::uint64_t i = 0; i < options_.streams; ++i) streams_.push_back(make_stream());
    if (chained()) {
      for (std::uint64_t i = 0; i < options_.streams; ++i) copy_streams_.push_back(make_stream());
    }
    read_stream_ = make_stream();
    const std::size_t bytes = workload_.output_bytes();
    if (options_.pageable) {
      pageable_.resize(bytes);
      read_ = pageable_.data();
    } else {
      pinned_ = make_pinned_buffer(bytes);
      read_ = static_cast<std::byte*>(pinned_.get());
    }
    slots_.resize(options_.depth);
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      Slot& slot = slots_[i];
      slot.out = make_device_buffer(bytes);
      slot.done = make_event();
      slot.stream = streams_[i % streams_.size()].get();
      if (chained()) {
        slot.own_input = make_device_buffer(workload_.inputs()[0].size());
        slot.stepped = make_event();
        slot.copied = make_event();
      }
    }
  }

  bool chained() const { return options_.chain > 1; }

  bool time_is_over() {
    if (stop_ != 0) {
      report_.stopped_by = "signal";
    } else if (options_.seconds > 0 && seconds_since(start_) >= options_.seconds) {
      report_.stopped_by = "seconds";
    } else {
      return false;
    }
    return true;
  }

  // Takes the oldest slot, finishes what is in it, and queues the next unit there.
  void queue_next(bool checked) {
    Slot& slot = slots_[next_unit_ % slots_.size()];
    finish(slot);
    submit(slot, next_unit_ * options_.chain, checked);
    ++next_unit_;
  }

  void submit(Slot& slot, std::uint64_t first_launch, bool checked) {
    // Results that add up tell of all launches since they were poisoned, so they are poisoned only
    // after a check; others tell of the last launch, so they are poisoned before it.
    const bool poison = workload_.accumulates() ? !slot.poisoned : checked;
    if (poison) {
      SLUICE_SUITE_CALL(
          cuMemsetD32Async(slot.out.get(), kPoison, workload_.output_bytes() / 4, slot.stream));
      slot.units.clear();
      slot.poisoned = true;
    }
    if (!workload_.accumulates()) slot.units.clear();
    slot.units.push_back(first_launch);
    slot.checked = checked;

    std::vector<std::uint64_t> inputs;
    for (const DeviceBuffer& input : inputs_) inputs.push_back(input.get());
    if (chained()) {
      inputs[0] = slot.own_input.get();
      SLUICE_SUITE_CALL(cuMemcpyDtoDAsync(slot.own_input.get(), inputs_[0].get(),
                                          workload_.inputs()[0].size(), slot.stream));
    }
    for (std::uint64_t i = 0; i < options_.chain; ++i) {
      if (i != 0) feed_back(slot);
      launch(slot, inputs, first_launch + i);
    }
    SLUICE_SUITE_CALL(cuEventRecord(slot.done.get(), slot.stream));
    slot.busy = true;
  }

  void launch(const Slot& slot, std::span<const std::uint64_t> inputs, std::uint64_t number) {
    Arguments arguments;
    workload_.arguments(arguments, slot.out.get(), inputs, number);
    const LaunchShape shape = workload_.shape();
    SLUICE_SUITE_CALL(cuLaunchKernel(function_, shape.grid_x, shape.grid_y, 1, shape.block_x,
                                     shape.block_y, 1, 0, slot.stream, arguments.pointers(),
                                     nullptr));
  }

  // The output becomes input 0, on another stream, so that only events keep the order.
  void feed_back(const Slot& slot) {
    const auto index = static_cast<std::size_t>(&slot - slots_.data());
    CUstream copy_stream = copy_streams_[index % copy_streams_.size()].get();
    SLUICE_SUITE_CALL(cuEventRecord(slot.stepped.get(), slot.stream));
    SLUICE_SUITE_CALL(cuStreamWaitEvent(copy_stream, slot.stepped.get(), 0));
    SLUICE_SUITE_CALL(cuMemcpyDtoDAsync(slot.own_input.get(), slot.out.get(),
                                        workload_.chain_bytes(), copy_stream));
    SLUICE_SUITE_CALL(cuEventRecord(slot.copied.get(), copy_stream));
    SLUICE_SUITE_CALL(cuStreamWaitEvent(slot.stream, slot.copied.get(), 0));
  }

  // Waits for the unit in `slot`, if any, and checks it if asked to.
  void finish(Slot& slot) {
    if (!slot.busy) return;
    SLUICE_SUITE_CALL(cuEventSynchronize(slot.done.get()));
    slot.busy = false;
    report_.launches += options_.chain;
    report_.seconds = seconds_since(start_);
    if (slot.checked) check_output(slot);
    progress();
  }

  // Finishes everything queued, oldest first, and checks it: it is what was there last.
  void drain() {
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      Slot& slot = slots_[(next_unit_ + i) % slots_.size()];
      slot.checked = true;
      finish(slot);
    }
  }

  void check_output(Slot& slot) {
    const Clock::time_point begin = Clock::now();
    const std::size_t bytes = workload_.output_bytes();
    std::fill_n(read_, std::min<std::size_t>(bytes, 64), std::byte{0});
    SLUICE_SUITE_CALL(cuMemcpyDtoHAsync(read_, slot.out.get(), bytes, read_stream_.get()));
    SLUICE_SUITE_CALL(cuStreamSynchronize(read_stream_.get()));
    want_.resize(bytes);
    if (workload_.accumulates()) {
      std::ranges::fill(as_elements<std::uint32_t>(want_), kPoison);
    }
    for (const std::uint64_t first : slot.units) workload_.advance(want_, first, options_.chain);
    const Verdict verdict = workload_.compare(want_, {read_, bytes});
    if (verdict.wrong_elements == 0) {
      ++report_.right;
    } else {
      ++report_.wrong;
      std::fprintf(stderr, "%s: launch %llu: %llu wrong elements:%s\n", workload_.name(),
                   static_cast<unsigned long long>(slot.units.back()),
                   static_cast<unsigned long long>(verdict.wrong_elements), verdict.first.c_str());
    }
    report_.check_seconds += seconds_since(begin);
    // A wrong sum stays wrong; start anew.
    slot.poisoned = false;
  }

  void progress() {
    if (!options_.progress || seconds_since(last_progress_) < 1.0) return;
    last_progress_ = Clock::now();
    std::fprintf(stderr, "%s: %.1f s, %llu launches, %llu right, %llu wrong\n", workload_.name(),
                 report_.seconds, static_cast<unsigned long long>(report_.launches),
                 static_cast<unsigned long long>(report_.right),
                 static_cast<unsigned long long>(report_.wrong));
  }

  Workload& workload_;
  const Options& options_;
  Report& report_;
  const volatile std::sig_atomic_t& stop_;
  Context context_;  // before all that lives in it
  Module module_;
  CUfunction function_ = nullptr;
  std::vector<DeviceBuffer> inputs_;
  std::vector<Stream> streams_, copy_streams_;
  Stream read_stream_;
  PinnedBuffer pinned_;
  std::vector<std::byte> pageable_, want_;
  std::byte* read_ = nullptr;  // one output, in pinned_ or pageable_
  std::vector<Slot> slots_;
  std::uint64_t next_unit_ = 0;
  Clock::time_point start_, last_progress_;
};

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      result += '\\';
      result += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      result += ' ';
    } else {
      result += c;
    }
  }
  return result + "\"";
}

volatile std::sig_atomic_t stop_requested = 0;

void on_signal(int) { stop_requested = 1; }

// The first SIGINT or SIGTERM ends the run in order, a second one at once.
void handle_signals() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = static_cast<int>(SA_RESTART | SA_RESETHAND);
  for (const int signal : {SIGINT, SIGTERM}) sigaction(signal, &action, nullptr);
}

}  // namespace

std::string to_json(const Report& report, const Options& options, std::uint64_t size) {
  char numbers[512];
  std::snprintf(
      numbers, sizeof(numbers),
      "\"launches\": %llu, \"seconds\": %.6f, \"check_seconds\": %.6f, \"right\": %llu, \"wrong\": "
      "%llu, "
      "\"size\": %llu, \"depth\": %llu, \"streams\": %llu, \"chain\": %llu, "
      "\"verify_every\": %llu, \"seed\": %llu",
      static_cast<unsigned long long>(report.launches), report.seconds, report.check_seconds,
      static_cast<unsigned long long>(report.right), static_cast<unsigned long long>(report.wrong),
      static_cast<unsigned long long>(size), static_cast<unsigned long long>(options.depth),
      static_cast<unsigned long long>(options.streams),
      static_cast<unsigned long long>(options.chain),
      static_cast<unsigned long long>(options.verify_every),
      static_cast<unsigned long long>(options.seed));
  return "{\"program\": " + quoted(report.program) + ", " + numbers +
         ", \"stopped_by\": " + quoted(report.stopped_by) +
         ", \"device\": " + quoted(report.device) +
         ", \"error\": " + (report.error.empty() ? "null" : quoted(report.error)) + "}";
}

bool is_checked(std::uint64_t unit, std::uint64_t verify_every) {
  if (verify_every == 0) return false;
  return unit % verify_every == Generator(unit / verify_every).next() % verify_every;
}

void run_workload(Workload& workload, const Options& options, Report& report,
                  const volatile std::sig_atomic_t& stop) {
  Runner(workload, options, report, stop).run();
}

int run_program(const char* name, std::unique_ptr<Workload> (*make)(const Options&), int argc,
                const char* const* argv) {
  Options options;
  Report report;
  report.program = name;
  std::unique_ptr<Workload> workload;
  try {
    options = parse_options({argv + 1, static_cast<std::size_t>(std::max(argc, 1) - 1)});
    if (options.help) {
      std::fputs(usage(name).c_str(), stdout);
      return 0;
    }
    if (options.inner != 0 && std::string(name) != "matmul") {
      throw UsageError("--inner is for matmul only");
    }
    workload = make(options);
  } catch (const UsageError& error) {
    std::fprintf(stderr, "%s: %s\n%s", name, error.what(), usage(name).c_str());
    return 2;
  }
  handle_signals();
  int status = 0;
  try {
    run_workload(*workload, options, report, stop_requested);
    status = report.wrong == 0 && report.right > 0 ? 0 : 1;
  } catch (const DriverError& error) {
    std::fprintf(stderr, "%s: %s\n", name, error.what());
    report.stopped_by = "error";
    report.error = error.what();
    status = 3;
  }
  if (options.json) {
    std::printf("%s\n", to_json(report, options, workload->size()).c_str());
  } else if (status != 3) {
    std::printf("%s: %llu launches in %.3f s on %s: %llu results right, %llu wrong\n", name,
                static_cast<unsigned long long>(report.launches), report.seconds,
                report.device.c_str(), static_cast<unsigned long long>(report.right),
                static_cast<unsigned long long>(report.wrong));
  }
  return status;
}

}  // namespace sluice::suite

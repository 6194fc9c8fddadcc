// SPDX-License-Identifier: Apache-2.0
// bench-tenant: a program that shares a GPU with others, led by gpu-bench. It reads a command a
// line and answers each with a line of JSON. All times are CLOCK_MONOTONIC, which the tenants of a
// machine share, so that they begin together.
//
//   load KEY KIND WHAT VALUE      makes a program (program.h)
//   drop KEY
//   run KEY PATTERN SECONDS AT [BIN_MS]
//                                 from AT (ns; 0: at once) for SECONDS: units, and how long they
//                                 took from their call to the end of the stream, in us; with BIN_MS
//                                 how many ended in each so many ms since it began
//   check KEY hash|whole          runs one unit more where that is needed, and says what it left
// and of `stamped`, whose blocks write down when they ran (GPU time, ns):
//   visits KEY COUNT GAP_US AT    units that it waits for; of each its call, its first block's
//                                 begin, its last block's end, and when the wait was over
//   activity KEY FROM TO BIN      blocks of the newest unit that ran, for each BIN of GPU time
//   clock KEY                     GPU time less CLOCK_MONOTONIC, from below and from above
//
// PATTERN: `wait:GAP_US` waits for each unit and sleeps; `queue:N` keeps N units queued;
// `poisson:MEAN_US:SEED` starts units at random times; `lock:FILE:GAP_US` holds the file's lock
// meanwhile; `slices:BLOCKS` launches so many blocks at a time and waits for each.
#include <fcntl.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <iostream>
#include <map>
#include <random>
#include <sstream>

#include "tests/bench/tenant/program.h"

namespace {

using namespace sluice::bench;
namespace suite = sluice::suite;

std::int64_t now_ns() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return std::int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

void sleep_until(std::int64_t ns) {
  const timespec t{ns / 1'000'000'000, ns % 1'000'000'000};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, nullptr) != 0) {
  }
}

// A sleep takes some 60 us at least: shorter ones are spun.
void pause(std::int64_t gap_us) {
  const std::int64_t end = now_ns() + gap_us * 1000;
  if (gap_us >= 100) sleep_until(end);
  while (now_ns() < end) {
  }
}

std::vector<std::string> split(const std::string& text, char by) {
  std::vector<std::string> parts;
  std::stringstream stream(text);
  for (std::string part; std::getline(stream, part, by);)
    if (!part.empty()) parts.push_back(part);
  return parts;
}

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  }
  return result + "\"";
}

// How long units took, and when the last began.
struct Times {
  std::vector<double> us;
  std::vector<std::int64_t> ends_ns;
  std::int64_t first_ns = 0, last_begin_ns = 0, last_end_ns = 0;
  // Units that were queued when time was over, and how long they took from then.
  std::size_t left = 0;
  std::int64_t left_ns = 0;

  void add(std::int64_t begin, std::int64_t end) {
    if (us.empty()) first_ns = begin;
    us.push_back(static_cast<double>(end - begin) / 1e3);
    ends_ns.push_back(end);
    last_begin_ns = begin;
    last_end_ns = end;
  }
  std::string json() const {
    if (us.empty()) return "{\"launches\":0}";
    std::vector<double> sorted = us;
    std::sort(sorted.begin(), sorted.end());
    double sum = 0;
    for (double t : sorted) sum += t;
    const auto at = [&](std::size_t percent) {
      return sorted[std::min(sorted.size() - 1, sorted.size() * percent / 100)];
    };
    char text[400];
    std::snprintf(text, sizeof text,
                  "{\"launches\":%zu,\"mean_us\":%.2f,\"min_us\":%.2f,\"p50_us\":%.2f,"
                  "\"p90_us\":%.2f,\"p99_us\":%.2f,\"max_us\":%.2f,\"took_us\":%.1f,"
                  "\"last_begin_ns\":%lld,\"last_end_ns\":%lld,\"left\":%zu,\"left_us\":%.1f}",
                  us.size(), sum / static_cast<double>(us.size()), sorted[0], at(50), at(90),
                  at(99), sorted.back(), static_cast<double>(last_end_ns - first_ns) / 1e3,
                  static_cast<long long>(last_begin_ns), static_cast<long long>(last_end_ns), left,
                  static_cast<double>(left_ns) / 1e3);
    return text;
  }
};

// How many ended in each bin since `from`: an object's last member.
std::string bins(const std::vector<std::int64_t>& ends_ns, std::int64_t from, std::int64_t bin_ns) {
  std::vector<std::uint32_t> count;
  for (std::int64_t end : ends_ns) {
    const auto bin = static_cast<std::size_t>(std::max<std::int64_t>(0, end - from) / bin_ns);
    if (bin >= count.size()) count.resize(bin + 1);
    ++count[bin];
  }
  std::string text = ",\"ends\":[";
  for (std::size_t i = 0; i < count.size(); ++i)
    text += (i == 0 ? "" : ",") + std::to_string(count[i]);
  return text + "]}";
}

class Tenant {
 public:
  Tenant() : stream_(suite::make_stream()) {}

  std::string answer(const std::vector<std::string>& words) {
    if (words.empty()) throw std::runtime_error("an empty command");
    const std::string& command = words[0];
    if (command == "load" && words.size() == 5) {
      const std::int64_t begin = now_ns();
      programs_[words[1]] = make_program({words.begin() + 2, words.end()});
      unit(*programs_[words[1]]);
      return "{\"load_us\":" + std::to_string((now_ns() - begin) / 1000) + "}";
    }
    if (command == "drop" && words.size() == 2) {
      programs_.erase(words[1]);
      return "{}";
    }
    if (command == "run" && (words.size() == 5 || words.size() == 6)) {
      const std::int64_t at = std::atoll(words[4].c_str()), from = at != 0 ? at : now_ns();
      const Times times = run(program(words[1]), words[2], std::atof(words[3].c_str()), at);
      const std::int64_t bin_ns = words.size() == 6 ? std::atoll(words[5].c_str()) * 1'000'000 : 0;
      if (bin_ns <= 0) return times.json();
      std::string text = times.json();
      text.pop_back();
      return text + bins(times.ends_ns, from, bin_ns);
    }
    if (command == "check" && words.size() == 3) {
      const Verdict v = program(words[1]).verdict(stream_.get(), words[2] == "whole");
      return "{\"wrong\":" + quoted(v.wrong) + ",\"hash\":\"" + std::to_string(v.hash) +
             "\",\"comparable\":" + (v.comparable ? "true}" : "false}");
    }
    if (command == "visits" && words.size() == 5)
      return visits(stamped(words[1]), std::atoi(words[2].c_str()), std::atoll(words[3].c_str()),
                    std::atoll(words[4].c_str()));
    if (command == "activity" && words.size() == 5)
      return activity(stamped(words[1]), std::atoll(words[2].c_str()), std::atoll(words[3].c_str()),
                      std::atoll(words[4].c_str()));
    if (command == "clock" && words.size() == 2) return clock(stamped(words[1]));
    throw std::runtime_error("no such command: " + command);
  }

 private:
  TenantProgram& program(const std::string& key) {
    const auto found = programs_.find(key);
    if (found == programs_.end()) throw std::runtime_error("no program " + key);
    return *found->second;
  }
  StampedProgram& stamped(const std::string& key) {
    auto* found = dynamic_cast<StampedProgram*>(&program(key));
    if (found == nullptr) throw std::runtime_error(key + " writes no times");
    return *found;
  }
  void wait() { SLUICE_SUITE_CALL(cuStreamSynchronize(stream_.get())); }
  void unit(TenantProgram& p) {
    p.queue(stream_.get());
    wait();
  }

  Times run(TenantProgram& p, const std::string& pattern, double seconds, std::int64_t at) {
    const std::vector<std::string> parts = split(pattern, ':');
    const auto part = [&](std::size_t i) {
      if (i >= parts.size()) throw std::runtime_error("a pattern lacks a value: " + pattern);
      return parts[i];
    };
    if (at != 0) sleep_until(at);
    const std::int64_t end = now_ns() + static_cast<std::int64_t>(seconds * 1e9);
    if (part(0) == "wait") return waiting(p, std::atoll(part(1).c_str()), end);
    if (part(0) == "queue") return queued(p, std::strtoul(part(1).c_str(), nullptr, 10), end);
    if (part(0) == "poisson")
      return poisson(p, std::atof(part(1).c_str()), std::strtoul(part(2).c_str(), nullptr, 10),
                     end);
    if (part(0) == "lock") return locked(p, part(1), std::atoll(part(2).c_str()), end);
    if (part(0) == "slices")
      return sliced(p, static_cast<std::uint32_t>(std::atoi(part(1).c_str())), end);
    throw std::runtime_error("no such pattern: " + pattern);
  }

  Times waiting(TenantProgram& p, std::int64_t gap_us, std::int64_t end) {
    Times times;
    while (now_ns() < end || times.us.empty()) {
      const std::int64_t begin = now_ns();
      unit(p);
      times.add(begin, now_ns());
      pause(gap_us);
    }
    return times;
  }

  // From when a unit was queued; those that were queued when time was over are not counted.
  Times queued(TenantProgram& p, std::size_t depth, std::int64_t end) {
    Times times;
    std::deque<std::pair<std::int64_t, suite::Event>> waits;
    std::vector<suite::Event> spare;
    const auto add = [&] {
      suite::Event event = spare.empty() ? suite::make_event() : std::move(spare.back());
      if (!spare.empty()) spare.pop_back();
      const std::int64_t begin = now_ns();
      p.queue(stream_.get());
      SLUICE_SUITE_CALL(cuEventRecord(event.get(), stream_.get()));
      waits.emplace_back(begin, std::move(event));
    };
    for (std::size_t i = 0; i < std::max<std::size_t>(depth, 1); ++i) add();
    for (;;) {
      SLUICE_SUITE_CALL(cuEventSynchronize(waits.front().second.get()));
      const std::int64_t now = now_ns();
      if (now > end && !times.us.empty()) {
        times.left = waits.size();
        break;
      }
      times.add(waits.front().first, now);
      spare.push_back(std::move(waits.front().second));
      waits.pop_front();
      add();
    }
    wait();
    times.left_ns = now_ns() - end;
    return times;
  }

  Times poisson(TenantProgram& p, double mean_us, std::uint64_t seed, std::int64_t end) {
    Times times;
    std::mt19937_64 random(seed);
    std::exponential_distribution<double> gap(1 / (mean_us * 1e3));
    for (std::int64_t due = now_ns();;) {
      due += static_cast<std::int64_t>(gap(random));
      if (due > end && !times.us.empty()) return times;
      const bool late = now_ns() > due;
      if (!late) sleep_until(due);
      // A unit that comes while the one before is under way has waited since it was due.
      const std::int64_t begin = late ? due : now_ns();
      unit(p);
      times.add(begin, now_ns());
    }
  }

  Times locked(TenantProgram& p, const std::string& path, std::int64_t gap_us, std::int64_t end) {
    Times times;
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) throw std::runtime_error("cannot open " + path);
    while (now_ns() < end || times.us.empty()) {
      const std::int64_t begin = now_ns();
      if (::flock(fd, LOCK_EX) != 0) throw std::runtime_error("cannot lock " + path);
      unit(p);
      ::flock(fd, LOCK_UN);
      times.add(begin, now_ns());
      if (gap_us > 0) sleep_until(now_ns() + gap_us * 1000);
    }
    ::close(fd);
    return times;
  }

  Times sliced(TenantProgram& p, std::uint32_t blocks, std::int64_t end) {
    if (blocks == 0) throw std::runtime_error("slices of no blocks");
    Times times;
    while (now_ns() < end || times.us.empty()) {
      const std::int64_t begin = now_ns();
      for (std::uint32_t first = 0; first < p.blocks(); first += blocks) {
        if (!p.queue_slice(stream_.get(), first, std::min(blocks, p.blocks() - first)))
          throw std::runtime_error("this program cannot be cut into slices");
        wait();
      }
      if (p.blocks() == 0) throw std::runtime_error("this program cannot be cut into slices");
      times.add(begin, now_ns());
    }
    return times;
  }

  // When a unit's first block began and its last ended.
  std::pair<std::int64_t, std::int64_t> ran(StampedProgram& p) {
    std::int64_t first = INT64_MAX, last = 0;
    for (const BlockStamp& s : p.stamps(stream_.get())) {
      first = std::min(first, static_cast<std::int64_t>(s.begin));
      last = std::max(last, static_cast<std::int64_t>(s.end));
    }
    return {first, last};
  }

  std::string visits(StampedProgram& p, int count, std::int64_t gap_us, std::int64_t at) {
    if (at != 0) sleep_until(at);
    std::string text = "{\"visits\":[";
    for (int i = 0; i < count; ++i) {
      const std::int64_t begin = now_ns();
      unit(p);
      const std::int64_t end = now_ns();
      const auto [first, last] = ran(p);
      text += (i == 0 ? "[" : ",[") + std::to_string(begin) + "," + std::to_string(first) + "," +
              std::to_string(last) + "," + std::to_string(end) + "]";
      if (gap_us > 0) sleep_until(now_ns() + gap_us * 1000);
    }
    return text + "]}";
  }

  std::string activity(StampedProgram& p, std::int64_t from, std::int64_t to, std::int64_t bin) {
    if (bin <= 0 || to <= from || (to - from) / bin > 20000)
      throw std::runtime_error("no such span of time");
    std::vector<double> running(static_cast<std::size_t>((to - from) / bin) + 1);
    for (const BlockStamp& s : p.stamps(stream_.get())) {
      const auto begin = std::max(static_cast<std::int64_t>(s.begin), from);
      const auto end = std::min(static_cast<std::int64_t>(s.end), to);
      for (std::int64_t t = begin; t < end;) {
        const std::int64_t next = std::min(end, from + ((t - from) / bin + 1) * bin);
        running[static_cast<std::size_t>((t - from) / bin)] += static_cast<double>(next - t);
        t = next;
      }
    }
    std::string text = "{\"blocks\":[";
    char number[32];
    for (std::size_t i = 0; i < running.size(); ++i) {
      std::snprintf(number, sizeof number, "%s%.1f", i == 0 ? "" : ",",
                    running[i] / static_cast<double>(bin));
      text += number;
    }
    return text + "]}";
  }

  // Each unit gives bounds: no block begins before the call, none ends after the wait.
  std::string clock(StampedProgram& p) {
    std::int64_t low = INT64_MIN, high = INT64_MAX;
    for (int i = 0; i < 50; ++i) {
      const std::int64_t begin = now_ns();
      unit(p);
      const std::int64_t end = now_ns();
      const auto [first, last] = ran(p);
      high = std::min(high, first - begin);
      low = std::max(low, last - end);
    }
    return "{\"low_ns\":" + std::to_string(low) + ",\"high_ns\":" + std::to_string(high) + "}";
  }

  suite::Stream stream_;
  std::map<std::string, std::unique_ptr<TenantProgram>> programs_;
};

}  // namespace

int main() {
  try {
    const suite::Context context;
    Tenant tenant;
    std::printf("{\"device\":%s}\n", quoted(context.device_name()).c_str());
    std::fflush(stdout);
    for (std::string line; std::getline(std::cin, line);) {
      std::puts(tenant.answer(split(line, ' ')).c_str());
      std::fflush(stdout);
    }
  } catch (const std::exception& error) {
    std::printf("{\"error\":%s}\n", quoted(error.what()).c_str());
    std::fflush(stdout);
    return 1;
  }
  return 0;
}

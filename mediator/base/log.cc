// SPDX-License-Identifier: Apache-2.0
#include "mediator/base/log.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <ctime>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "mediator/base/clock.h"
#include "mediator/base/limits.h"
#include "mediator/base/log_beginning.h"

namespace sluice::log {
namespace {

// To stderr, for as long as it takes; what cannot be written is lost.
void write_all(std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(2, text.data(), text.size());
    if (n > 0) {
      text.remove_prefix(static_cast<size_t>(n));
    } else if (errno == EAGAIN) {
      pollfd p{2, POLLOUT, 0};
      ::poll(&p, 1, -1);
    } else if (errno != EINTR) {
      return;
    }
  }
}

// Lines on their way to stderr, and the thread that may wait there for as long as it takes. Never
// destroyed, because the thread may still wait when the program ends.
class Background {
 public:
  void push(std::string line) {
    std::lock_guard lock(mutex_);
    if (lines_.size() >= limits::kMaxLogQueue) {
      lines_.pop_front();
      ++dropped_;
    }
    lines_.push_back(std::move(line));
    if (!started_) start();
    changed_.notify_all();
  }
  bool finish(uint64_t ms) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::milliseconds(ms),
                             [&] { return lines_.empty() && !writing_; });
  }

 private:
  void start() {
    sigset_t all, before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
      std::thread([this] { run(); }).detach();
      started_ = true;
    } catch (const std::system_error&) {  // the next line tries again
    }
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  void run() {
    ::pthread_setname_np(::pthread_self(), "log");
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return !lines_.empty(); });
      std::string line = std::move(lines_.front());
      lines_.pop_front();
      if (dropped_ != 0)
        line = fmt::format("({} log lines were dropped here: nobody read them)\n", dropped_) + line;
      dropped_ = 0;
      writing_ = true;
      lock.unlock();
      write_all(line);
      lock.lock();
      writing_ = false;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::string> lines_;
  uint64_t dropped_ = 0;
  bool started_ = false, writing_ = false;
};

// How many lines may begin alike.
class LineBudgets {
 public:
  // False: this one is not written. *suppressed: how many were not since the last that was.
  bool take(std::string_view line, uint64_t now_ns, uint64_t* suppressed) {
    std::lock_guard lock(mutex_);
    // All who are one too many share one.
    std::string key(beginning(line));
    if (budgets_.size() >= limits::kMaxLogKeys && !budgets_.count(key)) {
      forget_full(now_ns);
      if (budgets_.size() >= limits::kMaxLogKeys) key.clear();
    }
    Budget& b = budgets_.try_emplace(key, Budget{limits::kLogBurst, now_ns, 0}).first->second;
    b.lines = b.lines_at(now_ns);
    b.at_ns = now_ns;
    if (b.lines < 1) {
      ++b.suppressed;
      return false;
    }
    b.lines -= 1;
    *suppressed = std::exchange(b.suppressed, 0);
    return true;
  }

 private:
  struct Budget {
    double lines;
    uint64_t at_ns;
    uint64_t suppressed;
    double lines_at(uint64_t now_ns) const {
      return std::min(limits::kLogBurst,
                      lines + limits::kLogPerSecond * 1e-9 * static_cast<double>(now_ns - at_ns));
    }
  };
  // Those that are as if they were new: else guests that start many workers, each a beginning of
  // its own, would have all later ones share one. Once a second at most.
  void forget_full(uint64_t now_ns) {
    if (now_ns - forgotten_ns_ < 1'000'000'000) return;
    forgotten_ns_ = now_ns;
    std::erase_if(budgets_, [&](const auto& entry) {
      const Budget& b = entry.second;
      return b.suppressed == 0 && b.lines_at(now_ns) >= limits::kLogBurst;
    });
  }
  uint64_t forgotten_ns_ = 0;
  std::mutex mutex_;
  std::map<std::string, Budget> budgets_;
};

struct State {
  std::optional<std::string> program;  // none: before init()
  Level least = Level::kInfo;
  bool journal = false;
  std::mutex writing;                    // to stderr, at once
  Background* background = nullptr;      // null: lines are written at once
  std::unique_ptr<LineBudgets> budgets;  // null: no limit
  Observer observer;
};

// Never destroyed: a thread may log while the program ends.
State& state() {
  static State& s = *new State;
  return s;
}

// "2026-11-27 17:30:00.123", local time.
std::string time_text() {
  using namespace std::chrono;
  const auto now = system_clock::now();
  const std::time_t seconds = system_clock::to_time_t(now);
  std::tm t{};
  ::localtime_r(&seconds, &t);
  return fmt::format("{:04}-{:02}-{:02} {:02}:{:02}:{:02}.{:03}", t.tm_year + 1900, t.tm_mon + 1,
                     t.tm_mday, t.tm_hour, t.tm_min, t.tm_sec,
                     duration_cast<milliseconds>(now.time_since_epoch()).count() % 1000);
}

// sd-daemon(3): the kernel's priorities.
int to_syslog(Level level) {
  switch (level) {
    case Level::kDebug:
      return 7;
    case Level::kInfo:
      return 6;
    case Level::kWarning:
      return 4;
    case Level::kError:
      return 3;
  }
  return 3;
}

void put(Level level, std::string_view line) {
  State& s = state();
  // Lines may hold names that a guest chose: a control character must not forge another line.
  std::string clean(line);
  for (char& c : clean)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  std::string text = s.journal ? fmt::format("<{}>{}\n", to_syslog(level), clean)
                               : fmt::format("{} {}[{}] {}: {}\n", time_text(), *s.program,
                                             ::getpid(), level_name(level), clean);
  if (s.background) {
    s.background->push(std::move(text));
  } else {
    std::lock_guard lock(s.writing);
    write_all(text);
  }
  if (s.observer) s.observer(level, clean);
}

}  // namespace

void init(std::string_view program, Level least) {
  State& s = state();
  s.program = program;
  s.least = least;
  s.journal = std::getenv("JOURNAL_STREAM") != nullptr;
}

void write_in_background() {
  State& s = state();
  s.background = new Background;
  s.budgets = std::make_unique<LineBudgets>();
}

bool finish(uint64_t ms) { return !state().background || state().background->finish(ms); }

bool parse_level(std::string_view text, Level& level) {
  for (Level l : {Level::kDebug, Level::kInfo, Level::kWarning, Level::kError})
    if (text == level_name(l)) {
      level = l;
      return true;
    }
  return false;
}

std::string_view level_name(Level level) {
  switch (level) {
    case Level::kDebug:
      return "debug";
    case Level::kInfo:
      return "info";
    case Level::kWarning:
      return "warning";
    case Level::kError:
      return "error";
  }
  return "error";
}

void set_observer(Observer observer) { state().observer = std::move(observer); }

bool enabled(Level level) { return level >= state().least; }

void format(Level level, fmt::string_view f, fmt::format_args args) {
  write(level, fmt::vformat(f, args));
}

void write(Level level, std::string_view line) {
  State& s = state();
  if (!enabled(level)) return;
  if (!s.program) init("sluice", s.least);
  if (s.budgets && level != Level::kDebug) {  // who asks for debugging gets all of it
    uint64_t suppressed = 0;
    if (!s.budgets->take(line, monotonic_ns(), &suppressed)) return;
    if (suppressed != 0)
      put(level,
          fmt::format("{}: {} lines like the next were suppressed", beginning(line), suppressed));
  }
  put(level, line);
}

}  // namespace sluice::log

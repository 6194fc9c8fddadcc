#include "mediator/base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdlib>

namespace sluice::log {
namespace {

struct State {
  std::shared_ptr<spdlog::logger> logger;
  Level least = Level::kInfo;
  bool journal = false;
  Observer observer;
};

State& state() {
  static State s;
  return s;
}

spdlog::level::level_enum to_spdlog(Level level) {
  switch (level) {
    case Level::kDebug: return spdlog::level::debug;
    case Level::kInfo: return spdlog::level::info;
    case Level::kWarning: return spdlog::level::warn;
    case Level::kError: return spdlog::level::err;
  }
  return spdlog::level::err;
}

// sd-daemon(3): the kernel's priorities.
int to_syslog(Level level) {
  switch (level) {
    case Level::kDebug: return 7;
    case Level::kInfo: return 6;
    case Level::kWarning: return 4;
    case Level::kError: return 3;
  }
  return 3;
}

}  // namespace

void init(std::string_view program, Level least) {
  State& s = state();
  s.least = least;
  s.journal = std::getenv("JOURNAL_STREAM") != nullptr;
  s.logger = std::make_shared<spdlog::logger>(std::string(program),
                                              std::make_shared<spdlog::sinks::stderr_sink_mt>());
  s.logger->set_pattern(s.journal ? "%v" : "%Y-%m-%d %H:%M:%S.%e %n[%P] %l: %v");
  s.logger->set_level(to_spdlog(least));
  s.logger->flush_on(spdlog::level::trace);
}

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
    case Level::kDebug: return "debug";
    case Level::kInfo: return "info";
    case Level::kWarning: return "warning";
    case Level::kError: return "error";
  }
  return "error";
}

void set_observer(Observer observer) { state().observer = std::move(observer); }

bool enabled(Level level) { return level >= state().least; }

void format(Level level, fmt::string_view f, fmt::format_args args) { write(level, fmt::vformat(f, args)); }

void write(Level level, std::string_view line) {
  State& s = state();
  if (!s.logger) init("sluice", s.least);
  // Lines may hold names that a guest chose: a control character must not forge another line.
  std::string clean(line);
  for (char& c : clean)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  if (s.journal)
    s.logger->log(to_spdlog(level), "<{}>{}", to_syslog(level), clean);
  else
    s.logger->log(to_spdlog(level), "{}", clean);
  if (s.observer) s.observer(level, clean);
}

}  // namespace sluice::log

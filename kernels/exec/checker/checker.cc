// SPDX-License-Identifier: Apache-2.0
#include "kernels/exec/checker/checker.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>

#include "mediator/base/fd.h"

namespace sluice::exec {
namespace {

// Freed allocations that are remembered: this many frees ago a dangling pointer is still explained.
constexpr size_t kFreedKept = 4096;
// How far outside an allocation an address is still said to be "past its end" or "before it".
constexpr uint64_t kNear = 4096;

std::string dim(Dim3 d) {
  return "(" + std::to_string(d.x) + "," + std::to_string(d.y) + "," + std::to_string(d.z) + ")";
}

std::string place(const CheckParty& p) {
  std::string text = "block " + dim(p.block) + ", thread " + dim(p.thread);
  if (p.line != 0) text += " at PTX line " + std::to_string(p.line);
  if (!p.source.empty()) text += " (" + p.source + ")";
  return text;
}

std::string by_call(uint64_t call) {
  return call == 0 ? std::string() : " (call " + std::to_string(call) + ")";
}

std::string json_text(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", static_cast<unsigned>(c));
      out += escape;
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::string json_party(const CheckParty& p) {
  const auto list = [](Dim3 d) {
    return "[" + std::to_string(d.x) + "," + std::to_string(d.y) + "," + std::to_string(d.z) + "]";
  };
  std::string text = "\"line\":" + std::to_string(p.line);
  if (!p.source.empty()) text += ",\"source\":" + json_text(p.source);
  return text + ",\"block\":" + list(p.block) + ",\"thread\":" + list(p.thread) +
         ",\"what\":" + json_text(p.what);
}

}  // namespace

const char* to_string(CheckKind kind) {
  switch (kind) {
    case CheckKind::kMemory:
      return "memory";
    case CheckKind::kLeak:
      return "leak";
    case CheckKind::kRace:
      return "race";
    case CheckKind::kUninit:
      return "uninit";
    case CheckKind::kBarrier:
      return "barrier";
  }
  return "check";
}

Result<CheckOptions> CheckOptions::parse(std::string_view text) {
  CheckOptions options;
  while (!text.empty()) {
    const size_t comma = text.find(',');
    const std::string_view word = text.substr(0, comma);
    text = comma == text.npos ? std::string_view() : text.substr(comma + 1);
    if (word == "memory")
      options.memory = true;
    else if (word == "race")
      options.race = true;
    else if (word == "uninit")
      options.uninit = true;
    else if (word == "barrier")
      options.barrier = true;
    else if (word == "error")
      options.error = true;
    else if (word == "all")
      options.memory = options.race = options.uninit = options.barrier = true;
    else if (!word.empty())
      return Error{0, "unknown check \"" + std::string(word) +
                          "\"; there are memory, race, uninit, barrier, all, and error"};
  }
  return options;
}

std::string Finding::describe() const {
  std::string text = std::string(to_string(kind)) + ": ";
  if (!kernel.empty()) text += kernel + ": " + place(party) + " ";
  text += party.what;
  if (!space.empty())
    text += " " + std::to_string(bytes) + " bytes of " + space + " memory at " + hex(address);
  if (has_other) text += "; " + place(other) + " " + other.what;
  if (!detail.empty()) text += "; " + detail;
  return text;
}

std::string Finding::json() const {
  std::string text =
      std::string("{\"check\":\"") + to_string(kind) + "\",\"kernel\":" + json_text(kernel) + ",";
  text += json_party(party);
  if (has_other) text += ",\"other\":{" + json_party(other) + "}";
  if (!space.empty())
    text += ",\"space\":" + json_text(space) + ",\"address\":\"" + hex(address) +
            "\",\"bytes\":" + std::to_string(bytes);
  return text + ",\"detail\":" + json_text(detail) + "}";
}

Checker::Checker(const CheckOptions& options, std::function<void(const Finding&)> tell)
    : options_(options), tell_(std::move(tell)) {}
Checker::~Checker() = default;

void Checker::on_allocate(uint64_t base, uint64_t bytes, uint64_t call, bool defined) {
  {
    const std::lock_guard lock(mutex_);
    allocations_[base] = {bytes, call, false};
  }
  if (!options_.uninit) return;
  const std::lock_guard lock(shadow_.mutex());
  shadow_.add(base, bytes, defined);
}

void Checker::on_free(uint64_t base, uint64_t call) {
  {
    const std::lock_guard lock(mutex_);
    const auto it = allocations_.find(base);
    if (it == allocations_.end()) return;
    freed_.push_front({base, it->second.bytes, it->second.call, call});
    if (freed_.size() > kFreedKept) freed_.pop_back();
    allocations_.erase(it);
  }
  const std::lock_guard lock(shadow_.mutex());
  shadow_.remove(base);
}

void Checker::on_variable(uint64_t base) {
  uint64_t bytes = 0;
  {
    const std::lock_guard lock(mutex_);
    const auto it = allocations_.find(base);
    if (it == allocations_.end()) return;
    it->second.variable = true;
    bytes = it->second.bytes;
  }
  on_write(base, bytes);
}

void Checker::on_write(uint64_t address, uint64_t bytes) {
  if (!options_.uninit) return;
  const std::lock_guard lock(shadow_.mutex());
  shadow_.set_written(address, bytes);
}

void Checker::on_copy(uint64_t to, uint64_t from, uint64_t bytes) {
  if (!options_.uninit) return;
  const std::lock_guard lock(shadow_.mutex());
  shadow_.copy_written(to, from, bytes);
}

void Checker::report_leaks(const std::function<bool(uint64_t base)>& wanted) {
  if (!options_.memory) return;
  std::vector<std::pair<uint64_t, Known>> left;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [base, known] : allocations_)
      if (!known.variable && (!wanted || wanted(base))) left.emplace_back(base, known);
  }
  for (const auto& [base, known] : left) {
    Finding f;
    f.kind = CheckKind::kLeak;
    f.party.what = std::to_string(known.bytes) + " bytes at " + hex(base) + " were never freed";
    f.address = base;
    f.bytes = known.bytes;
    if (known.call != 0) f.detail = "allocated by call " + std::to_string(known.call);
    report(std::move(f));
  }
}

std::string Checker::explain_address(uint64_t address, uint64_t bytes) const {
  const std::lock_guard lock(mutex_);
  const auto size_of = [](uint64_t base, uint64_t size) {
    return std::to_string(size) + " bytes at " + hex(base);
  };
  auto it = allocations_.upper_bound(address);
  if (it != allocations_.begin()) {
    const auto& [base, known] = *std::prev(it);
    if (address < base + known.bytes)
      return std::to_string(address + bytes - base - known.bytes) +
             " of the bytes lie behind the end of " + size_of(base, known.bytes) +
             by_call(known.call);
  }
  // Memory that was there once explains more than memory that lies near.
  for (const Freed& f : freed_)
    if (address >= f.base && address < f.base + f.bytes)
      return "inside " + size_of(f.base, f.bytes) +
             (f.freed_by == 0 ? std::string(" that were freed")
                              : " that call " + std::to_string(f.freed_by) + " freed") +
             (f.allocated_by == 0
                  ? std::string()
                  : "; call " + std::to_string(f.allocated_by) + " had allocated them");
  if (it != allocations_.begin()) {
    const auto& [base, known] = *std::prev(it);
    const uint64_t past = address - base - known.bytes;
    if (past < kNear)
      return std::to_string(past) + " bytes past the end of " + size_of(base, known.bytes) +
             by_call(known.call);
  }
  if (it != allocations_.end() && it->first - address <= kNear)
    return std::to_string(it->first - address) + " bytes before " +
           size_of(it->first, it->second.bytes) + by_call(it->second.call);
  return {};
}

bool Checker::report(Finding finding) {
  const std::lock_guard lock(mutex_);
  // Once per place. A race's is the two lines, whichever came first; a leak's its address.
  uint32_t line = finding.party.line, other = finding.has_other ? finding.other.line : 0;
  if (finding.kind == CheckKind::kRace && other < line) std::swap(line, other);
  auto key = std::make_tuple(
      finding.kind, finding.kernel, line, other,
      finding.kind == CheckKind::kRace ? finding.space : finding.space + finding.party.what);
  const auto [it, added] = index_.emplace(std::move(key), findings_.size());
  if (!added) {
    if (it->second < findings_.size()) ++findings_[it->second].count;
    return false;
  }
  if (findings_.size() >= options_.limit) {
    ++suppressed_;
    return true;
  }
  if (tell_) tell_(finding);
  findings_.push_back(std::move(finding));
  return true;
}

std::vector<Finding> Checker::findings() const {
  const std::lock_guard lock(mutex_);
  return findings_;
}

uint64_t Checker::total() const {
  const std::lock_guard lock(mutex_);
  uint64_t sum = suppressed_;
  for (const Finding& f : findings_) sum += f.count;
  return sum;
}

std::string Checker::summary() const {
  const std::lock_guard lock(mutex_);
  if (findings_.empty()) return {};
  std::map<CheckKind, size_t> kinds;
  uint64_t times = 0;
  for (const Finding& f : findings_) {
    ++kinds[f.kind];
    times += f.count;
  }
  std::string text = std::to_string(findings_.size()) + " findings (";
  bool first = true;
  for (const auto& [kind, count] : kinds) {
    text += (first ? "" : ", ") + std::to_string(count) + " " + to_string(kind);
    first = false;
  }
  text += "), seen " + std::to_string(times) + " times";
  if (suppressed_ != 0) text += "; " + std::to_string(suppressed_) + " more places not shown";
  return text;
}

Result<std::function<void(const Finding&)>> make_finding_output(const std::string& log_path) {
  std::shared_ptr<Fd> log;
  if (!log_path.empty()) {
    Fd file(::open(log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
    if (!file) return Error::from_errno("opening " + log_path);
    log = std::make_shared<Fd>(std::move(file));
  }
  return std::function<void(const Finding&)>([log](const Finding& f) {
    const std::string line = "softcuda check: " + f.describe() + "\n";
    std::fwrite(line.data(), 1, line.size(), stderr);
    if (!log) return;
    const std::string json = f.json() + "\n";
    // One write per line, so that lines of several processes do not mix.
    if (::write(log->get(), json.data(), json.size()) < 0) return;
  });
}

}  // namespace sluice::exec

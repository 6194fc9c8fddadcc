// SPDX-License-Identifier: Apache-2.0
#include "guest-agent/agent/handover.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>

namespace sluice::guest {
namespace {

// The first line. Another number: neither reads the other's.
constexpr char kTitle[] = "sluice-agent state 1";
constexpr size_t kMostBytes = 1 << 20;
constexpr size_t kMapPage = 4096;

std::vector<int> descriptors_of(const VgpuDevice& device, const AgentState& state) {
  std::vector<int> fds{device.container.get(), device.group.get(), device.device.get(),
                       device.registers_file.get(), state.listener.get()};
  for (const Fd& vector : device.vectors) fds.push_back(vector.get());
  for (const Program& p : state.programs) {
    fds.push_back(p.socket.get());
    fds.push_back(p.process.get());
  }
  std::erase(fds, -1);
  return fds;
}

void keep_open(const std::vector<int>& fds, bool keep) {
  for (const int fd : fds) ::fcntl(fd, F_SETFD, keep ? 0 : FD_CLOEXEC);
}

// Names are the programs' own: they end at the end of the line.
std::string one_line(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c == '\n'; }, '?');
  return text;
}

// ---- reading ----

bool take(std::istream& from, Fd& fd) {
  int number = -1;
  if (!(from >> number)) return false;
  fd.reset(number);
  return number < 0 || ::fcntl(number, F_SETFD, FD_CLOEXEC) == 0;
}

bool take(std::istream& from, VgpuDevice& d) {
  std::string transport;
  size_t vectors = 0;
  if (!take(from, d.container) || !take(from, d.group) || !take(from, d.device) ||
      !take(from, d.registers_file))
    return false;
  from >> d.region_offset >> d.region_bytes >> d.doorbell_offset >> d.control_bytes >>
      d.registers_at >> transport >> d.address >> vectors;
  d.transport = transport == name_of(Transport::kSysfs) ? Transport::kSysfs : Transport::kVfio;
  for (size_t i = 0; from && i < vectors; ++i)
    if (!take(from, d.vectors.emplace_back())) return false;
  return from && !d.vectors.empty();
}

bool take(std::istream& from, Program& p) {
  unsigned program_state = 0;
  if (!take(from, p.socket) || !take(from, p.process)) return false;
  from >> program_state >> p.pid >> p.request >> p.slot >> p.slot_epoch >> p.deadline_ns;
  from.ignore();
  std::getline(from, p.name);
  p.state = static_cast<ProgramState>(program_state);
  return from && program_state <= static_cast<unsigned>(ProgramState::kOver);
}

bool take(std::istream& from, AgentState& s) {
  size_t programs = 0;
  if (!take(from, s.listener)) return false;
  from >> s.epoch >> s.host_epoch >> s.beat >> s.next_request >> programs;
  for (size_t i = 0; from && i < programs; ++i)
    if (!take(from, s.programs.emplace_back())) return false;
  return from && s.listener;
}

Result<void*> map_shared(const Fd& fd, size_t bytes, uint64_t offset) {
  void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(),
                    static_cast<off_t>(offset));
  if (at == MAP_FAILED) return Error::from_errno("map the device");
  return at;
}

Result<void> map_again(VgpuDevice& d) {
  auto registers = map_shared(d.transport == Transport::kSysfs ? d.registers_file : d.device,
                              kMapPage, d.doorbell_offset);
  if (!registers) return registers.error();
  d.registers = *registers;
  auto control = map_shared(d.device, d.control_bytes, d.region_offset);
  if (!control) return control.error();
  d.control = static_cast<std::byte*>(*control);
  return {};
}

}  // namespace

Result<Fd> write_state(const VgpuDevice& d, const AgentState& s) {
  std::ostringstream text;
  text << kTitle << '\n'
       << d.container.get() << ' ' << d.group.get() << ' ' << d.device.get() << ' '
       << d.registers_file.get() << ' ' << d.region_offset << ' ' << d.region_bytes << ' '
       << d.doorbell_offset << ' ' << d.control_bytes << ' ' << d.registers_at << ' '
       << name_of(d.transport) << ' ' << d.address << ' ' << d.vectors.size();
  for (const Fd& vector : d.vectors) text << ' ' << vector.get();
  text << '\n'
       << s.listener.get() << ' ' << s.epoch << ' ' << s.host_epoch << ' ' << s.beat << ' '
       << s.next_request << ' ' << s.programs.size() << '\n';
  for (const Program& p : s.programs)
    text << p.socket.get() << ' ' << p.process.get() << ' ' << static_cast<unsigned>(p.state) << ' '
         << p.pid << ' ' << p.request << ' ' << p.slot << ' ' << p.slot_epoch << ' '
         << p.deadline_ns << ' ' << one_line(p.name) << '\n';
  Fd file(::memfd_create("sluice-agent", MFD_CLOEXEC));
  const std::string bytes = text.str();
  if (!file ||
      ::write(file.get(), bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size()))
    return Error::from_errno("write the state for the next agent");
  return file;
}

Result<Inherited> read_state(Fd file) {
  std::string bytes(kMostBytes, '\0');
  const ssize_t n = ::pread(file.get(), bytes.data(), bytes.size(), 0);
  if (n < 0) return Error::from_errno("read the last agent's state");
  bytes.resize(static_cast<size_t>(n));
  std::istringstream text(bytes);
  std::string title;
  Inherited inherited{std::make_unique<VgpuDevice>(), {}};
  if (!std::getline(text, title) || title != kTitle)
    return Error{0, "the last agent's state is of another release"};
  if (!take(text, *inherited.device) || !take(text, inherited.state))
    return Error{0, "the last agent's state is incomplete"};
  if (auto mapped = map_again(*inherited.device); !mapped) return mapped.error();
  if (auto fits = check_channel_header(*inherited.device); !fits) return fits.error();
  bind_release_request(*inherited.device);
  return inherited;
}

Error start_successor(const std::string& program, const std::vector<std::string>& arguments,
                      const VgpuDevice& device, const AgentState& state) {
  auto text = write_state(device, state);
  if (!text) return text.error();
  std::vector<std::string> words = arguments;
  words.insert(words.end(), {"--successor", std::to_string(text->get())});
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  std::vector<int> fds = descriptors_of(device, state);
  fds.push_back(text->get());
  keep_open(fds, true);
  ::execv(program.c_str(), pointers.data());
  const Error error = Error::from_errno("run " + program);
  keep_open(fds, false);
  return error;
}

}  // namespace sluice::guest

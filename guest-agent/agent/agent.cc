// SPDX-License-Identifier: Apache-2.0
#include "guest-agent/agent/agent.h"

#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "guest-agent/agent/limits.h"
#include "mediator/base/clock.h"
#include "mediator/base/peer_socket.h"
#include "mediator/base/unix_socket.h"
#include "mediator/ring/wait.h"

namespace sluice::guest {
namespace {

constexpr uint64_t kBeatNs = 1'000'000'000;
// A program that connects and then sends nothing.
constexpr uint64_t kJoinNs = 10'000'000'000;
// Between two beats of the host; sluiced's are a second apart.
constexpr uint64_t kSilentNs = 10'000'000'000;
constexpr const char* kDetached = "the vGPU was detached from this virtual machine";
constexpr const char* kHostSilent = "the host's mediator does not answer (is sluiced stopped?)";
// Connections at once: more than a vGPU has slots, so that the answer is a reason and not a hang.
constexpr size_t kMostPrograms = 4 * SLUICE_MAX_SLOTS;
// Polled before the programs': the host's bell, the listener, the caller's, the kernel's request.
constexpr size_t kFixedDescriptors = 4;

uint64_t random_u64() {
  uint64_t value = 0;
  while (value == 0)
    if (::getrandom(&value, sizeof value, 0) != sizeof value) value = monotonic_ns() | 1;
  return value;
}

void log(const std::string& text) { std::fprintf(stderr, "sluice-agent: %s\n", text.c_str()); }

std::string text_of(const char* from, size_t room) {
  return std::string(from, strnlen(from, room));
}

void copy_text(char* to, size_t room, const std::string& text) {
  const size_t n = std::min(text.size(), room - 1);
  std::memcpy(to, text.data(), n);
  std::memset(to + n, 0, room - n);
}

// A program has its slot's vector, too, and may have made it block.
void drain(int vector) {
  if (!drain_shared_eventfd(vector) && errno == EOPNOTSUPP) drain_eventfd(vector);
}

int open_pidfd(pid_t pid) { return static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)); }

}  // namespace

Agent::Agent(VgpuDevice& device, Fd listener) : device_(device) {
  state_.listener = std::move(listener);
  refuse_descriptors(state_.listener.get());
  announce();
}

Agent::Agent(VgpuDevice& device, AgentState inherited)
    : device_(device), state_(std::move(inherited)) {
  refuse_descriptors(state_.listener.get());
  go_on();
}

Agent::~Agent() {
  // The programs' connections close with us; sluiced sees the next agent's epoch. Telling it now
  // frees their GPU work at once.
  for (Program& program : state_.programs)
    if (program.state == ProgramState::kOpen || program.state == ProgramState::kEnded)
      program_ended(program);
}

// The rings go on from where they stand: sluiced keeps its own indices. Answers to an earlier agent
// that are still in there match no request of ours.
void Agent::open_rings() {
  const Bell bell = Bell::for_mmio(device_.doorbell(), SLUICE_IVSHMEM_HOST_PEER << 16);
  to_host_ = RingProducer(control_to_host(device_.control), bell, false);
  from_host_ = RingConsumer(control_to_agent(device_.control), bell, false);
  copy_text(device_.header().agent_release, sizeof device_.header().agent_release, SLUICE_VERSION);
}

void Agent::go_on() {
  open_rings();
  host_beat_ns_ = monotonic_ns();
  beat(host_beat_ns_);
}

AgentState Agent::hand_over() {
  from_host_.release();
  return std::exchange(state_, {});
}

// A new life of this agent: everything before it is over, on both sides. Programs that have asked
// and have nothing yet ask anew.
void Agent::announce() {
  for (Program& program : state_.programs)
    if (program.state != ProgramState::kJoining && program.state != ProgramState::kAsked)
      program.state = ProgramState::kOver;
  remove_finished_programs();
  backlog_.clear();
  open_rings();
  state_.host_epoch = load_shared(device_.header().host_epoch, std::memory_order_acquire);
  state_.next_request = random_u64();
  state_.epoch = random_u64();
  host_beat_ns_ = monotonic_ns();
  store_fence();
  store_shared(device_.header().agent_epoch, state_.epoch, std::memory_order_release);
  beat(host_beat_ns_);
  full_fence();
  Bell::for_mmio(device_.doorbell(), SLUICE_IVSHMEM_HOST_PEER << 16).ring();
  for (const Fd& vector : device_.vectors) drain(vector.get());
  for (Program& program : state_.programs)
    if (program.state == ProgramState::kAsked) ask(program);
}

void Agent::beat(uint64_t now_ns) {
  store_shared(device_.header().agent_beat, ++state_.beat);
  next_beat_ns_ = now_ns + kBeatNs;
}

Result<void> Agent::check_host() {
  const sluice_channel_header& header = device_.header();
  // What is mapped of a device that has gone reads as zeros, or as ones. By VFIO it is asked for
  // before that.
  if (load_shared(header.magic) != SLUICE_CHANNEL_MAGIC)
    return Error{static_cast<int>(DeviceProblem::kNoDevice), kDetached};
  const uint32_t state = load_shared(header.state, std::memory_order_acquire);
  if (state == SLUICE_CHANNEL_CLOSED || state == SLUICE_CHANNEL_REFUSED)
    return Error{
        static_cast<int>(DeviceProblem::kRefused),
        "the host has taken the vGPU away: " + text_of(header.reason, sizeof header.reason)};
  if (to_host_.broken() || from_host_.broken())
    return Error{
        static_cast<int>(DeviceProblem::kOther),
        std::string("control ring: ") + to_host_.broken_reason() + from_host_.broken_reason()};
  if (load_shared(header.host_epoch, std::memory_order_acquire) != state_.host_epoch) {
    log("the host gave the vGPU a new life: every session is over");
    announce();
  }
  return {};
}

// Where nothing rings: how long until the control ring is read again.
int Agent::pause_ms() const {
  bool awaited = !backlog_.empty();
  for (const Program& program : state_.programs)
    awaited |= program.state == ProgramState::kAsked || program.state == ProgramState::kDeserted;
  return awaited ? limits::kPollBusyMs : limits::kPollIdleMs;
}

Result<void> Agent::step(int timeout_ms, int extra_fd) {
  if (auto ok = check_host(); !ok) return ok;
  Polled polled;
  gather(polled, extra_fd);
  const bool asleep = from_host_.arm();
  const int wait_ms = asleep ? wait_ms_within(timeout_ms) : 0;
  const int ready = ::poll(polled.fds.data(), polled.fds.size(), wait_ms);
  from_host_.disarm();
  if (polled.fds[0].revents != 0) drain(device_.vectors[0].get());
  if (polled.fds[3].revents != 0) {
    for (const Program& program : state_.programs) tell(program, ENODEV, kDetached);
    return Error{static_cast<int>(DeviceProblem::kRefused),
                 "the device is being detached: it is given back, and programs' sessions end"};
  }
  const uint64_t now = monotonic_ns();
  read_control();
  if (ready > 0) {
    read_programs(polled);
    if (polled.fds[1].revents != 0) accept_programs(now);
  }
  for (Program& program : state_.programs)
    if (program.state == ProgramState::kJoining && now > program.deadline_ns)
      program.state = ProgramState::kOver;
  remove_finished_programs();
  flush();
  if (now >= next_beat_ns_) beat(now);
  watch_host(now);
  return {};
}

void Agent::gather(Polled& to, int extra_fd) {
  to.fds.push_back({device_.vectors[0].get(), POLLIN, 0});
  to.fds.push_back(
      {state_.programs.size() + closer_.open() < kMostPrograms ? state_.listener.get() : -1, POLLIN,
       0});
  to.fds.push_back({extra_fd, POLLIN, 0});
  to.fds.push_back({device_.wanted_back.get(), POLLIN, 0});
  for (Program& program : state_.programs) {
    if (program.state == ProgramState::kDeserted)
      continue;  // its descriptors are closed; only OPENED is awaited
    to.fds.push_back({program.socket.get(), POLLIN | POLLRDHUP, 0});
    to.fds.push_back({program.process.get(), POLLIN, 0});
    to.owners.push_back(&program);
  }
}

// Until the next beat at most, and where nothing rings until the ring is read again.
int Agent::wait_ms_within(int timeout_ms) const {
  const uint64_t now = monotonic_ns();
  const auto until_beat =
      static_cast<int64_t>(next_beat_ns_ > now ? (next_beat_ns_ - now) / 1'000'000 + 1 : 0);
  if (timeout_ms < 0 || until_beat < timeout_ms) timeout_ms = static_cast<int>(until_beat);
  return device_.transport == Transport::kSysfs ? std::min(timeout_ms, pause_ms()) : timeout_ms;
}

void Agent::read_programs(const Polled& polled) {
  for (size_t i = 0; i < polled.owners.size(); ++i) {
    Program& program = *polled.owners[i];
    const pollfd* fds = &polled.fds[kFixedDescriptors + 2 * i];
    const short socket_events = fds[0].revents, process_events = fds[1].revents;
    if (program.state == ProgramState::kOver || program.state == ProgramState::kDeserted) continue;
    if (process_events != 0) {
      program_ended(program);
    } else if (socket_events != 0) {
      // A joined program sends nothing more: whatever comes is its end.
      if (program.state != ProgramState::kJoining || (socket_events & POLLIN) == 0)
        program_ended(program);
      else
        read_join(program);
    }
  }
}

void Agent::watch_host(uint64_t now_ns) {
  const uint64_t host_beat = load_shared(device_.header().host_beat);
  if (host_beat != host_beat_) {
    if (host_silent_) log("the host's daemon is back");
    host_beat_ = host_beat;
    host_beat_ns_ = now_ns;
    host_silent_ = false;
  } else if (!host_silent_ && now_ns - host_beat_ns_ > kSilentNs) {
    host_silent_ = true;
    log("the host's daemon is silent: programs that run go on, new ones are refused");
    for (Program& program : state_.programs)
      if (program.state == ProgramState::kAsked) refuse(program, EHOSTDOWN, kHostSilent);
  }
}

// ---- programs ----

void Agent::accept_programs(uint64_t now_ns) {
  while (state_.programs.size() + closer_.open() < kMostPrograms) {
    Fd socket(::accept4(state_.listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) return;
    refuse_descriptors(socket.get());
    Program& program = state_.programs.emplace_back();
    program.sends_no_fds = kernel_refuses_descriptors(socket.get());
    program.socket = std::move(socket);
    program.deadline_ns = now_ns + kJoinNs;
    if (auto peer = peer_credentials(program.socket.get())) {
      program.pid = static_cast<uint32_t>(peer->pid);
      // pid 0 is of another PID namespace; then the connection alone says when it ends.
      if (peer->pid != 0) program.process = Fd(open_pidfd(peer->pid));
      if (peer->pid != 0 && !program.process && errno == ESRCH) program.state = ProgramState::kOver;
    }
  }
}

void Agent::read_join(Program& program) {
  sluice_join join{};
  auto received = receive_plain(program.socket.get(), &join, sizeof join);
  if (!received) {
    if (received.error().code != EAGAIN) program.state = ProgramState::kOver;
    return;
  }
  if (received->bytes == 0) {
    program.state = ProgramState::kOver;
    return;
  }
  if (received->bytes != sizeof join || received->truncated || join.magic != SLUICE_JOIN_MAGIC ||
      sluice_join_common(join.version) == 0)
    return refuse(program, EPROTO, "the program's libcuda.so.1 is not of this agent's version");
  program.name = text_of(join.program, sizeof join.program);
  if (host_silent_) return refuse(program, EHOSTDOWN, kHostSilent);
  program.state = ProgramState::kAsked;
  ask(program);
}

void Agent::close_socket(Program& program) {
  if (program.sends_no_fds)
    program.socket.reset();
  else
    closer_.close(std::move(program.socket));
}

void Agent::remove_finished_programs() {
  for (Program& program : state_.programs)
    if (program.state == ProgramState::kOver) close_socket(program);
  state_.programs.remove_if([](const Program& p) { return p.state == ProgramState::kOver; });
}

void Agent::ask(Program& program) {
  program.request = ++state_.next_request;
  sluice_control_message m{};
  m.request = program.request;
  m.guest_pid = program.pid;
  copy_text(m.text, sizeof m.text, program.name);
  send(SLUICE_CONTROL_OPEN, m);
}

void Agent::refuse(Program& program, int error, const std::string& reason) {
  tell(program, error, reason);
  program.state = ProgramState::kOver;
}

// The answer to joining, or to one that has joined, why its session ends.
void Agent::tell(const Program& program, int error, const std::string& reason) {
  if (!program.socket) return;
  sluice_joined joined{};
  joined.magic = SLUICE_JOIN_MAGIC;
  joined.status = static_cast<uint32_t>(error);
  copy_text(joined.reason, sizeof joined.reason, reason);
  (void)send_with_fds(program.socket.get(), &joined, sizeof joined, {});
}

void Agent::program_ended(Program& program) {
  if (program.state ==
      ProgramState::kAsked) {  // the slot is on its way: it is closed when it comes
    program.state = ProgramState::kDeserted;
    close_socket(program);
    program.process.reset();
    return;
  }
  // Also after CLOSED: the host keeps the slot's memory as it is until then.
  if (program.state == ProgramState::kOpen || program.state == ProgramState::kEnded) {
    sluice_control_message m{};
    m.slot = program.slot;
    m.epoch = program.slot_epoch;
    m.guest_pid = program.pid;
    send(SLUICE_CONTROL_CLOSE, m);
    flush();
  }
  program.state = ProgramState::kOver;
}

// ---- the control rings ----

void Agent::read_control() {
  while (from_host_.pop(buffer_) == Pop::kRecord) {
    sluice_control_message message;
    if (buffer_.body().size() < sizeof message) continue;
    std::memcpy(&message, buffer_.body().data(), sizeof message);
    if (buffer_.record().opcode == SLUICE_CONTROL_OPENED) on_opened(message);
    if (buffer_.record().opcode == SLUICE_CONTROL_CLOSED) on_closed(message);
  }
}

void Agent::on_opened(const sluice_control_message& message) {
  for (Program& program : state_.programs) {
    const bool deserted = program.state == ProgramState::kDeserted;
    if ((!deserted && program.state != ProgramState::kAsked) || program.request != message.request)
      continue;
    if (message.status != 0) {
      const std::string reason = text_of(message.text, sizeof message.text);
      if (deserted)
        program.state = ProgramState::kOver;
      else
        refuse(program, static_cast<int>(message.status), reason);
      return;
    }
    program.state = ProgramState::kOpen;
    program.slot = message.slot;
    program.slot_epoch = message.epoch;
    if (deserted) return program_ended(program);
    const uint32_t vector = program.slot + 1;
    if (program.slot >= device_.header().slot_count)
      return refuse(program, EPROTO, "the host named a slot that there is not");
    sluice_joined joined{};
    joined.magic = SLUICE_JOIN_MAGIC;
    joined.slot = program.slot;
    const bool apart = device_.transport == Transport::kSysfs;
    joined.doorbell_kind = apart ? SLUICE_DOORBELL_MMIO_APART : SLUICE_DOORBELL_MMIO;
    joined.epoch = program.slot_epoch;
    joined.region_bytes = device_.region_bytes;
    joined.region_offset = device_.region_offset;
    joined.doorbell_offset = device_.doorbell_offset;
    joined.doorbell_at = static_cast<uint32_t>(device_.registers_at) + SLUICE_IVSHMEM_DOORBELL;
    joined.doorbell_value = SLUICE_IVSHMEM_HOST_PEER << 16 | vector;
    // A device with fewer vectors than slots, or without interrupts: the program polls.
    joined.can_wait = vector < device_.vectors.size() ? 1 : 0;
    joined.flags = message.flags;
    const int wake = device_.vectors[joined.can_wait ? vector : 0].get();
    if (joined.can_wait) drain(wake);  // rung for the slot's program before this one
    const int fds[] = {device_.device.get(), wake, device_.registers_file.get()};
    if (!send_with_fds(program.socket.get(), &joined, sizeof joined,
                       std::span(fds).first(apart ? 3 : 2)))
      program_ended(program);
    return;
  }
  // Nobody asked, or an earlier agent did: the slot must not stay taken.
  if (message.status == 0) {
    sluice_control_message m{};
    m.slot = message.slot;
    m.epoch = message.epoch;
    send(SLUICE_CONTROL_CLOSE, m);
  }
}

void Agent::on_closed(const sluice_control_message& message) {
  for (Program& program : state_.programs) {
    if (program.state != ProgramState::kOpen || program.slot != message.slot ||
        program.slot_epoch != message.epoch)
      continue;
    log("session of " + program.name + " (pid " + std::to_string(program.pid) +
        ") has ended: " + text_of(message.text, sizeof message.text));
    program.state = ProgramState::kEnded;  // its library sees it in the slot
  }
}

void Agent::send(uint16_t opcode, const sluice_control_message& message) {
  backlog_.emplace_back(opcode, message);
}

void Agent::flush() {
  while (!backlog_.empty()) {
    sluice_record record{};
    record.opcode = backlog_.front().first;
    record.call_id = backlog_.front().second.request;
    if (!to_host_.push(record, std::as_bytes(std::span(&backlog_.front().second, 1)))) break;
    backlog_.pop_front();
  }
  to_host_.publish();
  // A full ring: the host's bell for room is vector 0, which every step listens to.
  if (!backlog_.empty() && !to_host_.arm_space(record_bytes(sizeof(sluice_control_message))))
    next_beat_ns_ = 0;  // there is room by now: the next step comes at once
}

}  // namespace sluice::guest

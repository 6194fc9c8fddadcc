// SPDX-License-Identifier: Apache-2.0
#include "guest-agent/transport/channel.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "abi/cuda_driver.h"
#include "mediator/base/clock.h"
#include "mediator/base/unix_socket.h"
#include "mediator/ring/fence.h"
#include "mediator/ring/wait.h"

namespace sluice::guest {
namespace {

constexpr size_t kPage = 4096;
// Where no interrupt reaches us, the pause between two polls.
constexpr useconds_t kNapUs = 200;

// While sluiced or the agent is started anew nobody listens, for some 50 ms.
constexpr uint64_t kRestartNs = 1'000'000'000;
constexpr useconds_t kRestartNapUs = 10'000;

void copy_text(char* to, size_t room, const std::string& text) {
  const size_t n = std::min(text.size(), room - 1);
  std::memcpy(to, text.data(), n);
  std::memset(to + n, 0, room - n);
}

std::string text_of(const char* from, size_t room) {
  return std::string(from, strnlen(from, room));
}

// Where the socket's folder is there, whoever listens may be just between two of its lives.
Result<Fd> connect_through_a_restart(const std::string& path) {
  const std::string folder = path.substr(0, path.rfind('/') + 1);
  const uint64_t end_ns = monotonic_ns() + kRestartNs;
  for (;;) {
    auto socket = connect_unix(path, SOCK_SEQPACKET);
    const int code = socket ? 0 : socket.error().code;
    if ((code != ENOENT && code != ECONNREFUSED) || monotonic_ns() >= end_ns ||
        ::access(folder.c_str(), F_OK) != 0)
      return socket;
    ::usleep(kRestartNapUs);
  }
}

}  // namespace

std::string socket_path() {
  const char* env = ::getenv("SLUICE_SOCKET");
  return env != nullptr && *env != '\0' ? env : kDefaultSocket;
}

Channel::~Channel() {
  if (region_ != nullptr) ::munmap(region_, region_bytes_);
  if (doorbell_page_ != nullptr) ::munmap(doorbell_page_, kPage);
}

Result<std::unique_ptr<Channel>> Channel::join(const std::string& path, const std::string& program,
                                               void (*silent)()) {
  auto socket = connect_through_a_restart(path);
  if (!socket) {
    const int code = socket.error().code;
    return std::move(socket).error().with_context(
        code == EACCES || code == EPERM
            ? "this user is not in the group that may use the vGPU (adduser USER sluice, then log "
              "in anew)"
            : "no vGPU here: is sluice-agent (in a VM) or sluiced running");
  }

  sluice_join join{};
  join.magic = SLUICE_JOIN_MAGIC;
  join.version = SLUICE_JOIN_VERSION(SLUICE_CHANNEL_VERSION, SLUICE_CHANNEL_OLDEST);
  copy_text(join.program, sizeof join.program, program);
  if (auto sent = send_with_fds(socket->get(), &join, sizeof join, {}); !sent) return sent.error();

  // Answers come within milliseconds, on a busy host within seconds. Less would speak of those.
  constexpr int kSilentMs = 10'000;
  pollfd answer{.fd = socket->get(), .events = POLLIN, .revents = 0};
  if (silent != nullptr && ::poll(&answer, 1, kSilentMs) == 0) silent();
  sluice_joined joined{};
  auto received = receive_with_fds(socket->get(), &joined, sizeof joined);
  if (!received) return received.error();
  if (received->bytes == 0) return Error{ECONNRESET, "the vGPU's owner closed the connection"};
  if (received->bytes != sizeof joined || received->truncated || joined.magic != SLUICE_JOIN_MAGIC)
    return Error{EPROTO, "the answer to joining is not of this version of Sluice"};
  if (joined.status != 0)
    return Error{static_cast<int>(joined.status),
                 "the vGPU takes no program: " + text_of(joined.reason, sizeof joined.reason)};

  auto channel = std::make_unique<Channel>();
  channel->socket_ = std::move(*socket);
  if (auto mapped = channel->map(joined, received->fds); !mapped) return mapped.error();
  return channel;
}

Result<void> Channel::map(const sluice_joined& joined, std::vector<Fd>& fds) {
  const bool apart = joined.doorbell_kind == SLUICE_DOORBELL_MMIO_APART;
  const bool mmio = apart || joined.doorbell_kind == SLUICE_DOORBELL_MMIO;
  if (!mmio && joined.doorbell_kind != SLUICE_DOORBELL_EVENTFD)
    return Error{EPROTO, "unknown kind of doorbell"};
  if (fds.size() < (mmio && !apart ? 2u : 3u)) return Error{EPROTO, "descriptors are missing"};
  const uint64_t slot_end = SLUICE_SLOT_OFFSET + (uint64_t{joined.slot} + 1) * SLUICE_SLOT_STRIDE;
  if (joined.slot >= SLUICE_MAX_SLOTS || joined.region_bytes > SLUICE_WINDOW_BYTES ||
      slot_end > joined.region_bytes)
    return Error{EPROTO, "slot or region is out of range"};

  device_ = std::move(fds[0]);
  if (mmio) {
    wake_ = std::move(fds[1]);
  } else {
    bell_fd_ = std::move(fds[1]);
    wake_ = std::move(fds[2]);
  }

  if (auto mapped = map_region(joined); !mapped) return mapped;
  if (mmio) {
    const int page = apart ? fds[2].get() : device_.get();
    if (auto mapped = map_doorbell(joined, page); !mapped) return mapped;
  } else {
    bell_ = Bell::for_eventfd(bell_fd_.get());
  }
  slot_ = joined.slot;
  epoch_ = joined.epoch;
  can_wait_ = joined.can_wait != 0;
  lazy_clones_ = joined.flags & SLUICE_JOINED_LAZY_CLONES;
  clones_on_request_ = joined.flags & SLUICE_JOINED_CLONES_ON_REQUEST;
  forms_apart_ = joined.flags & SLUICE_JOINED_FORMS_APART;
  originals_at_once_ = joined.flags & SLUICE_JOINED_ORIGINALS_AT_ONCE;
  originals_ = joined.flags & SLUICE_JOINED_ORIGINALS;
  header_ = reinterpret_cast<const sluice_slot_header*>(region_ + SLUICE_SLOT_OFFSET +
                                                        uint64_t{slot_} * SLUICE_SLOT_STRIDE);
  return {};
}

Result<void> Channel::map_region(const sluice_joined& joined) {
  void* const window = reinterpret_cast<void*>(SLUICE_WINDOW_ADDRESS);
  void* at =
      ::mmap(window, joined.region_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED_NOREPLACE,
             device_.get(), static_cast<off_t>(joined.region_offset));
  if (at == MAP_FAILED) return Error::from_errno("map the vGPU's memory at its fixed address");
  region_ = static_cast<std::byte*>(at);
  region_bytes_ = joined.region_bytes;
  region_offset_ = joined.region_offset;
  if (at != window)  // kernels before 4.17 take the flag for a hint
    return Error{EEXIST, "the vGPU's address window is in use"};
  // A child would share rings and indices with its parent; without the mapping it cannot.
  ::madvise(region_, region_bytes_, MADV_DONTFORK);
  return {};
}

Result<void> Channel::map_doorbell(const sluice_joined& joined, int fd) {
  if (joined.doorbell_at > kPage - sizeof(uint32_t) || joined.doorbell_at % sizeof(uint32_t) != 0)
    return Error{EPROTO, "doorbell register is out of range"};
  void* page = ::mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
                      static_cast<off_t>(joined.doorbell_offset));
  if (page == MAP_FAILED) return Error::from_errno("map the doorbell page");
  doorbell_page_ = page;
  ::madvise(doorbell_page_, kPage, MADV_DONTFORK);
  bell_ = Bell::for_mmio(
      reinterpret_cast<volatile uint32_t*>(static_cast<char*>(page) + joined.doorbell_at),
      joined.doorbell_value);
  return {};
}

bool Channel::ended() const {
  // The epoch too: the slot may have ended and been opened for another program while we slept.
  return hung_up_ || load_shared(header_->state, std::memory_order_acquire) != SLUICE_SLOT_OPEN ||
         load_shared(header_->epoch) != epoch_;
}

SessionEnd Channel::end_reason() const {
  SessionEnd end;
  end.error = CUDA_ERROR_DEVICE_UNAVAILABLE;
  // It stays to be read: several threads may ask.
  sluice_joined last{};
  if (::recv(socket_.get(), &last, sizeof last, MSG_DONTWAIT | MSG_PEEK) == sizeof last &&
      last.magic == SLUICE_JOIN_MAGIC && last.status != 0) {
    end.reason = text_of(last.reason, sizeof last.reason);
    return end;
  }
  if (load_shared(header_->epoch) != epoch_) {
    // What is mapped of a device that has gone reads as zeros, or as ones.
    const auto& channel = *reinterpret_cast<const sluice_channel_header*>(region_);
    end.reason = load_shared(channel.magic) != SLUICE_CHANNEL_MAGIC
                     ? "the vGPU was detached from this virtual machine"
                 : hung_up_ ? "the connection to the vGPU was closed"
                            : "it ended long ago; the slot has another program";
    return end;
  }
  if (load_shared(header_->state, std::memory_order_acquire) == SLUICE_SLOT_ENDED) {
    if (header_->error != 0) end.error = header_->error;
    end.reason = text_of(header_->reason, sizeof header_->reason);
  }
  if (end.reason.empty())
    end.reason = hung_up_ ? "the connection to the vGPU was closed" : "the session was closed";
  return end;
}

void Channel::wait(uint64_t timeout_ns) {
  // What comes from the socket after joining is its end, or why it comes.
  pollfd fds[2] = {{socket_.get(), POLLIN | POLLRDHUP, 0}, {wake_.get(), POLLIN, 0}};
  if (!can_wait_) {
    ::usleep(kNapUs);
    timeout_ns = 0;
  }
  const timespec timeout{static_cast<time_t>(timeout_ns / 1'000'000'000),
                         static_cast<long>(timeout_ns % 1'000'000'000)};
  const int n = ::ppoll(fds, can_wait_ ? 2 : 1, &timeout, nullptr);
  if (n <= 0) return;  // time, or a signal: the caller polls again
  if (fds[0].revents != 0) hung_up_ = true;
  if (can_wait_ && (fds[1].revents & POLLIN) != 0) drain_eventfd(wake_.get());
}

bool Channel::poll_hang_up() {
  pollfd fd{socket_.get(), POLLIN | POLLRDHUP, 0};
  if (!hung_up_ && ::poll(&fd, 1, 0) > 0 && fd.revents != 0) hung_up_ = true;
  return hung_up_;
}

bool Channel::map_again(void* at, uint64_t offset, uint64_t bytes) {
  std::lock_guard lock(again_mutex_);
  if (device_.get() < 0 || offset > region_bytes_ || bytes > region_bytes_ - offset) return false;
  if (::mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, device_.get(),
             static_cast<off_t>(region_offset_ + offset)) == MAP_FAILED)
    return false;
  again_[at] = bytes;
  return true;
}

bool Channel::put_private(void* at, uint64_t bytes) {
  void* fresh = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (fresh == MAP_FAILED) return false;
  std::memcpy(fresh, at, bytes);
  if (::mremap(fresh, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, at) == MAP_FAILED) {
    ::munmap(fresh, bytes);
    return false;
  }
  return true;
}

bool Channel::map_private(void* at, uint64_t bytes) {
  std::lock_guard lock(again_mutex_);
  if (!put_private(at, bytes)) return false;
  again_.erase(at);
  return true;
}

void Channel::detach(const std::vector<std::pair<uint64_t, uint64_t>>& keep) {
  if (!can_detach()) return;
  for (;;) {
    std::pair<void*, uint64_t> one;
    {
      std::lock_guard lock(again_mutex_);
      forget_what_went();
      if (again_.empty()) break;
      one = *again_.begin();
    }
    if (!map_private(one.first, one.second)) return;  // likewise
  }
  void* fresh = ::mmap(nullptr, region_bytes_, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (fresh == MAP_FAILED) return;  // then it stays as it is, and the device busy
  for (const auto& [offset, bytes] : keep)
    std::memcpy(static_cast<std::byte*>(fresh) + offset, region_ + offset, bytes);
  // In one step, so that no other thread finds a hole there.
  if (::mremap(fresh, region_bytes_, region_bytes_, MREMAP_MAYMOVE | MREMAP_FIXED, region_) ==
      MAP_FAILED) {
    ::munmap(fresh, region_bytes_);
    return;
  }
  ::mmap(doorbell_page_, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
         0);
  device_.reset();
}

void Channel::forget_what_went() {
  if (again_.empty()) return;
  struct Mapping {
    unsigned long begin = 0, end = 0, inode = 0;
    char rights[5] = {}, device[16] = {};
  };
  std::vector<Mapping> all;
  FILE* file = std::fopen("/proc/self/maps", "re");
  char line[4608];
  while (file != nullptr && std::fgets(line, sizeof line, file) != nullptr) {
    Mapping m;
    if (std::sscanf(line, "%lx-%lx %4s %*x %15s %lu", &m.begin, &m.end, m.rights, m.device,
                    &m.inode) == 5)
      all.push_back(m);
  }
  if (file != nullptr) std::fclose(file);
  const auto at = [&](uint64_t address) -> const Mapping* {
    for (const Mapping& m : all)
      if (m.begin <= address && address < m.end) return &m;
    return nullptr;
  };
  const Mapping* const region = at(reinterpret_cast<uint64_t>(region_));
  const auto went = [&](uint64_t from, uint64_t to) {
    while (from < to) {
      const Mapping* m = at(from);
      if (m == nullptr || region == nullptr || m->inode != region->inode ||
          std::strcmp(m->device, region->device) != 0 || std::strcmp(m->rights, "rw-s") != 0)
        return true;
      from = m->end;
    }
    return false;
  };
  for (auto it = again_.begin(); it != again_.end();) {
    const auto from = reinterpret_cast<uint64_t>(it->first);
    it = went(from, from + it->second) ? again_.erase(it) : std::next(it);
  }
}

void Channel::before_fork() {
  again_mutex_.lock();
  forget_what_went();
  int ends[2];
  if (again_.empty() || ::pipe2(ends, O_CLOEXEC) != 0) return;
  copied_ = Fd(ends[0]);
  copying_ = Fd(ends[1]);
}

void Channel::after_fork_in_parent() {
  copying_.reset();
  if (copied_.get() >= 0) {
    // Until the child has closed its end, or is gone; one that is stopped is not waited for for
    // ever. It then has what the memory holds when it goes on.
    constexpr int kPatienceMs = 10'000;
    pollfd end{copied_.get(), POLLIN, 0};
    while (::poll(&end, 1, kPatienceMs) < 0 && errno == EINTR) {
    }
    copied_.reset();
  }
  again_mutex_.unlock();
}

void Channel::abandon_in_child(bool prepared) {
  if (prepared) {
    for (const auto& [at, bytes] : again_) (void)put_private(at, bytes);
    copying_.reset();
    copied_.reset();
    again_mutex_.unlock();
  }
  socket_.reset();
  device_.reset();
  bell_fd_.reset();
  wake_.reset();
}

}  // namespace sluice::guest

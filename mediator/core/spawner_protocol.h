// SPDX-License-Identifier: Apache-2.0
// The messages between sluiced and sluice-spawner. One packet of a SOCK_SEQPACKET pair is one
// message. Both ends check what they get: a message that is malformed ends the connection, and with
// it the spawner and all workers.
//
// The link, descriptor 3 of sluice-spawner, to its keeper:
//   sluiced -> keeper    Setup (once, first), Launch
//   keeper -> sluiced    Launched (pid; descriptor: the control socket of a new spawner)
// The control socket, to that spawner:
//   spawner -> sluiced   Hello (once, first; descriptors: the GPU's context-switch log, see below),
//                        Spawned (descriptor: a pidfd), Failed, Exited; Xid (a fault that the
//                        kernel's log has of a worker), NoXids (there will be none any more);
//                        Starved (the answer to AskStarved)
//   sluiced -> spawner   Spawn (descriptors: control, output), Kill, Forget (a vGPU's machine
//                        code), AskStarved
//
//   a worker, by its id:   Spawn --> Spawned --> Exited,  or --> Failed at any point before it runs
//
// What a worker is - program, environment, what it may see - is fixed by Setup, which sluiced sends
// before it serves anybody. So whoever takes over sluiced later can start workers and end them, and
// nothing else.
#pragma once

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::spawner_protocol {

inline constexpr int kControlFd = 3;
inline constexpr uint32_t kVersion = 5;
// A packet of either side at most. Setup carries the environment of workers.
inline constexpr size_t kMaxBytes = 64u << 10;

// Errors of sending that end no connection: memory is short, or too many descriptors are under way.
// Either may be a guest's doing, and others' workers must not end for it.
inline bool passes(int error) {
  return error == ENOBUFS || error == ENOMEM || error == ETOOMANYREFS;
}

// What stands between a worker and the rest of the host. Each is up or missing, and if it is
// missing the host does not allow it (no root, a container) or lacks it (an old kernel).
enum class Wall : uint32_t {
  kUser,      // a user and group id of its own
  kPids,      // a pid namespace: it sees, signals and traces nobody; its end ends all that it made
  kRoot,      // a root folder that shows what the driver needs, read-only, and nothing else
  kProc,      // /proc of its own pid namespace
  kNetwork,   // a network namespace without interfaces; abstract Unix sockets are there, too
  kIpc,       // System V IPC and POSIX queues of its own
  kHostName,  // a host name of its own
  kCgroup,    // a cgroup, ended as a whole
  kLandlock,  // the kernel refuses files, signals and abstract sockets besides its own, whatever
              // its uid
  kCount
};
inline constexpr std::string_view kWallNames[] = {"user", "pids", "root",   "proc",    "network",
                                                  "ipc",  "uts",  "cgroup", "landlock"};
static_assert(sizeof kWallNames / sizeof kWallNames[0] == static_cast<size_t>(Wall::kCount));

enum class Type : uint32_t {
  kSetup = 1,
  kSpawn = 2,
  kKill = 3,
  kLaunch = 4,
  kForget = 5,
  kAskStarved = 6,
  kHello = 11,
  kSpawned = 12,
  kFailed = 13,
  kExited = 14,
  kLaunched = 15,
  kXid = 16,
  kNoXids = 17,
  kStarved = 18,
};

struct Header {
  Type type{};
  int32_t code =
      0;  // Xid: its number. Hello, Failed: an errno, 0: good. Exited: signal or exit status
  uint64_t id = 0;    // of a worker, chosen by sluiced, never used twice. Hello: workers ended that
                      // an earlier sluiced had left. Forget: of a vGPU
  int64_t pid = 0;    // Spawned: as the spawner sees it. Launched: the spawner
  uint32_t flag = 0;  // Setup: Flags. Spawn: MiB of its region. Exited: 1 it died of a signal
  uint32_t version = kVersion;
  uint64_t vgpu = 0;  // Spawn: whose it is, with whose workers it shares a cgroup and a cache of
                      // machine code; 0: nobody's
  uint64_t ns = 0;    // Starved: for so long nothing of it and of its vGPU's other workers ran
                      // although something could have, as far as the kernel counts that
};
static_assert(sizeof(Header) == 48);

// kSwitchLog: record the GPU's context switches.
enum Flags : uint32_t { kNvidia = 1, kSwitchLog = 2 };

// Hello brings the log where it was asked for and can be had: its ring (gpu/switch_ring.h) and a
// socket that takes a byte, the last one of which counts.
inline constexpr char kSwitchLogGoOn = 'g', kSwitchLogRest = 'r';

// Setup and Hello have lines behind the header, each with its NUL: "key=value". Failed has one:
// why.
//   Setup  runtime=DIR worker=PATH library=PATH uids=FIRST-LAST see=PATH... env=NAME=VALUE...
//   mps=DIR
//          kernel-log=PATH memory=BYTES, of one worker, its region apart; none: no limit
//          code-cache=BYTES, of one vGPU; none: there are no caches of machine code
//   Hello  missing=WALL: why... no-limit=CONTROLLER: why... no-kernel-log=why
//          no-code-cache=why no-switch-log=why no-pressure=why    or, with a code, error=why
struct Packet {
  Header header;
  std::vector<std::string> lines;

  // All values of a key, in order.
  std::vector<std::string> all(std::string_view key) const {
    std::vector<std::string> found;
    for (const std::string& l : lines)
      if (l.size() > key.size() && l.compare(0, key.size(), key) == 0 && l[key.size()] == '=')
        found.push_back(l.substr(key.size() + 1));
    return found;
  }
  std::string one(std::string_view key) const {
    auto found = all(key);
    return found.empty() ? std::string() : found.front();
  }
  void add(std::string_view key, std::string_view value) {
    lines.push_back(std::string(key) + "=" + std::string(value));
  }
};

inline std::string encode(const Packet& p) {
  std::string bytes(reinterpret_cast<const char*>(&p.header), sizeof p.header);
  for (const std::string& l : p.lines) bytes.append(l.c_str(), l.size() + 1);
  return bytes;
}

// nullopt: it is no packet of this version.
inline std::optional<Packet> decode(std::string_view bytes) {
  Packet p;
  if (bytes.size() < sizeof p.header || bytes.size() > kMaxBytes) return std::nullopt;
  std::memcpy(&p.header, bytes.data(), sizeof p.header);
  if (p.header.version != kVersion) return std::nullopt;
  bytes.remove_prefix(sizeof p.header);
  if (!bytes.empty() && bytes.back() != '\0') return std::nullopt;
  while (!bytes.empty()) {
    const size_t end = bytes.find('\0');
    p.lines.emplace_back(bytes.substr(0, end));
    bytes.remove_prefix(end + 1);
  }
  return p;
}

struct UidRange {
  uint32_t first = 0, last = 0;
  bool contains(uint64_t id) const { return id >= first && id <= last; }
  uint32_t count() const { return last - first + 1; }
};
// "FIRST-LAST", without root and without the numbers that mean "none".
inline std::optional<UidRange> parse_uids(std::string_view text) {
  uint64_t numbers[2] = {};
  size_t n = 0, digits = 0;
  for (char c : text) {
    if (c == '-' && n == 0 && digits != 0) {
      n = 1;
      digits = 0;
    } else if (c >= '0' && c <= '9' && digits < 10) {
      numbers[n] = numbers[n] * 10 + static_cast<uint64_t>(c - '0');
      ++digits;
    } else {
      return std::nullopt;
    }
  }
  if (n != 1 || digits == 0 || numbers[0] == 0 || numbers[1] < numbers[0] ||
      numbers[1] >= 0xffff'fffe)
    return std::nullopt;
  return UidRange{static_cast<uint32_t>(numbers[0]), static_cast<uint32_t>(numbers[1])};
}

}  // namespace sluice::spawner_protocol

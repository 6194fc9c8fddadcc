// SPDX-License-Identifier: Apache-2.0
// FakeDriverDevice: NVIDIA's kernel driver as far as its context-switch log is concerned, for tests
// on machines without one (mediator/gpu/driver_device.h). Checks each call by the layout that was
// measured on a real driver, as words of 32 bits, and answers as that did.
//
// What is asked wrongly gets a status of the driver's, never a crash: the test sees which.
#pragma once

#include <linux/ioctl.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "mediator/base/clock.h"
#include "mediator/gpu/driver_device.h"

namespace sluice::test {

class FakeDriverDevice : public gpu::DriverDevice {
 public:
  // Statuses of the driver's.
  static constexpr uint32_t kInvalidArgument = 0x1f, kInvalidObject = 0x33, kRefused = 0x1b,
                            kNotSupported = 0x56;

  // ---- what a test sets ----
  int refuse_at = -1;  // the call of this number fails with `refuse_status`
  uint32_t refuse_status = kRefused;
  int refuse_errno = 0;  // if not 0: with this one, instead
  uint32_t gpus = 1;
  bool old_driver = false;  // knows the first form of the bind only
  bool admin = true;
  int64_t clock_ahead_ns = 5'000'000'000;  // the GPU's, of the host's

  // The GPU writes a record. It is in the ring after the next flush.
  void switches(bool start, uint32_t pid, uint64_t host_ns) {
    pending_.push_back({start, pid, host_ns + static_cast<uint64_t>(clock_ahead_ns)});
  }
  void skip_sequence(uint16_t n) { seq_ = static_cast<uint16_t>(seq_ + n); }

  // ---- what it sees ----
  int calls = 0;
  size_t open_files() const { return files_.size(); }
  size_t mappings() const { return mappings_; }
  size_t objects() const { return objects_.size(); }
  std::vector<std::string> wrong;  // what cannot be asked so
  virtual void on_flush() {}

  // ---- the driver ----
  int open(const char* path) override {
    if (refused()) return errno = refuse_errno != 0 ? refuse_errno : EACCES, -1;
    files_[++last_fd_] = path;
    return last_fd_;
  }
  void close(int fd) override { files_.erase(fd); }

  const void* map(int fd, size_t bytes) override {
    if (refused()) return errno = refuse_errno != 0 ? refuse_errno : EINVAL, nullptr;
    const auto m = prepared_.find(fd);
    if (m == prepared_.end()) return errno = EINVAL, nullptr;
    std::vector<char>& memory = memories_[m->second];
    if (memory.size() != bytes) return errno = EINVAL, nullptr;
    ++mappings_;
    return memory.data();
  }
  void unmap(const void*, size_t) override { --mappings_; }

  int ioctl(int fd, unsigned long request, void* argument) override {
    if (files_.count(fd) == 0) return errno = EBADF, -1;
    if (_IOC_TYPE(request) != 'F' || _IOC_DIR(request) != (_IOC_READ | _IOC_WRITE))
      return errno = EINVAL, -1;
    const unsigned bytes = _IOC_SIZE(request);
    const bool refuse = refused();
    if (refuse && refuse_errno != 0) return errno = refuse_errno, -1;
    std::vector<uint32_t> w(bytes / 4);
    std::memcpy(w.data(), argument, bytes);
    uint32_t* status = nullptr;
    switch (_IOC_NR(request)) {
      case 201:  // register a file
        if (bytes != 4 || files_[fd] != "/dev/nvidia0" ||
            files_[static_cast<int>(w[0])] != "/dev/nvidiactl")
          return errno = EINVAL, -1;
        return refuse ? (errno = EPERM, -1) : 0;
      case 0x29:
        if (bytes != 16) return errno = EINVAL, -1;
        status = &w[3];
        break;
      case 0x2a:
      case 0x2b:
        if (bytes != 32) return errno = EINVAL, -1;
        status = &w[7];
        break;
      case 0x4e:
        if (bytes != 56) return errno = EINVAL, -1;
        status = &w[10];
        break;
      default:
        return errno = EINVAL, -1;
    }
    if (files_[fd] != "/dev/nvidiactl") return errno = EINVAL, -1;
    if (refuse)
      *status = refuse_status;
    else if (_IOC_NR(request) == 0x29)
      *status = free(w[0], w[2]);
    else if (_IOC_NR(request) == 0x2b)
      *status = allocate(w);
    else if (_IOC_NR(request) == 0x4e)
      *status = prepare_mapping(w);
    else
      *status = control(w[0], w[1], w[2], address(w, 4), w[6]);
    std::memcpy(argument, w.data(), bytes);
    return 0;
  }

 private:
  struct Pending {
    bool start;
    uint32_t pid;
    uint64_t gpu_ns;
  };
  bool refused() { return calls++ == refuse_at; }
  static char* address(const std::vector<uint32_t>& w, size_t at) {
    uint64_t p;
    std::memcpy(&p, &w[at], sizeof p);
    return reinterpret_cast<char*>(p);
  }
  template <class T>
  static T at(const char* parameters, size_t offset) {
    T value;
    std::memcpy(&value, parameters + offset, sizeof value);
    return value;
  }
  uint32_t bad(const std::string& what) {
    wrong.push_back(what);
    return kInvalidArgument;
  }

  uint32_t free(uint32_t client, uint32_t handle) {
    if (client != kClient || objects_.count(handle) == 0) return kInvalidObject;
    handle == kClient ? objects_.clear() : void(objects_.erase(handle));
    return 0;
  }

  uint32_t allocate(std::vector<uint32_t>& w) {
    const uint32_t object_class = w[3], size = w[6];
    const char* p = address(w, 4);
    if (object_class == 0x41) {
      w[2] = kClient;
      objects_[kClient] = object_class;
      return 0;
    }
    if (w[0] != kClient || objects_.count(w[1]) == 0 || w[2] == 0 || objects_.count(w[2]) != 0)
      return kInvalidObject;
    if (object_class == 0x80) {
      if (size != 56 || at<uint32_t>(p, 0) != kInstance) return bad("device");
    } else if (object_class == 0x2080) {
      if (size != 4 || objects_[w[1]] != 0x80) return bad("subdevice");
    } else if (object_class == 0x90ce) {
      if (size != 128 || w[1] != kClient || at<uint32_t>(p, 24) != (1u << 29 | 1u << 25) ||
          at<uint32_t>(p, 28) != 1u << 22)
        return bad("memory");
      memories_[w[2]].resize(at<uint64_t>(p, 64));
    } else if (object_class == 0x90cd) {
      const auto header = at<uint32_t>(p, 60), records = at<uint32_t>(p, 64),
                 count = at<uint32_t>(p, 20);
      if (size != 72 || w[1] != kClient || at<uint32_t>(p, 16) != 32) return bad("event buffer");
      // A real one dereferences a null pointer in the kernel.
      if (objects_[at<uint32_t>(p, 52)] != 0x2080) return bad("event buffer without a subdevice");
      if (memories_[header].size() < 32 || memories_[records].size() < size_t{count} * 32)
        return bad("event buffer's memory");
      buffer_ = w[2];
      header_ = header;
      records_ = records;
      count_ = count;
    } else {
      return bad("class");
    }
    objects_[w[2]] = object_class;
    return 0;
  }

  uint32_t prepare_mapping(const std::vector<uint32_t>& w) {
    const auto fd = static_cast<int>(w[12]);
    uint64_t bytes;
    std::memcpy(&bytes, &w[6], sizeof bytes);
    if (w[0] != kClient || w[1] != kClient || memories_.count(w[2]) == 0) return kInvalidObject;
    if (w[11] != 1 || files_[fd] != "/dev/nvidiactl" || bytes != memories_[w[2]].size())
      return bad("mapping");
    if (prepared_.count(fd) != 0) return bad("a second mapping of one file");
    prepared_[fd] = w[2];
    return 0;
  }

  uint32_t control(uint32_t client, uint32_t object, uint32_t command, char* p, uint32_t size) {
    if (client != kClient || objects_.count(object) == 0) return kInvalidObject;
    const uint32_t object_class = objects_[object];
    switch (command) {
      case 0x201: {
        if (object != kClient || size != 128) return bad("list of GPUs");
        std::vector<uint32_t> ids(32, 0xffffffffu);
        for (uint32_t i = 0; i < gpus; ++i) ids[i] = kGpu + i;
        std::memcpy(p, ids.data(), 128);
        return 0;
      }
      case 0x205:
        if (object != kClient || size != 32 || at<uint32_t>(p, 0) != kGpu) return bad("GPU");
        std::memcpy(p + 8, &kInstance, 4);
        return 0;
      case 0x20800403: {
        if (object_class != 0x2080 || size != 8) return bad("time");
        const uint64_t now = monotonic_ns() + static_cast<uint64_t>(clock_ahead_ns);
        std::memcpy(p, &now, 8);
        return 0;
      }
      case 0x20801238:
        if (old_driver) return kNotSupported;
        if (object_class != 0x2080 || size != 24 || at<uint8_t>(p, 16) != 1) return bad("bind");
        if (!admin) {
          const uint32_t reason = 4;
          std::memcpy(p + 20, &reason, 4);
          return kRefused;
        }
        return bind(p);
      case 0x20801231:
        if (object_class != 0x2080 || size != 20 || at<uint8_t>(p, 16) != 1) return bad("bind");
        return admin ? bind(p) : kRefused;
      case 0x90cd0101:
        if (object != buffer_ || size != 8 || at<uint8_t>(p, 0) != 1 || at<uint32_t>(p, 4) != 1)
          return bad("enable");
        enabled_ = true;
        return 0;
      case 0x90cd0102:
        if (object != buffer_ || size != 8 || at<uint32_t>(p, 0) >= count_) return bad("get");
        put_word(0, at<uint32_t>(p, 0));
        return 0;
      case 0x90cd0104:
        if (object != buffer_ || size != 0) return bad("flush");
        on_flush();
        flush();
        return 0;
      default:
        return bad("command");
    }
  }
  uint32_t bind(const char* p) {
    if (at<uint32_t>(p, 0) != buffer_ || at<uint32_t>(p, 4) != 32 || at<uint32_t>(p, 8) != 1)
      return bad("bind's parameters");
    bound_ = true;
    return 0;
  }

  void put_word(size_t offset, uint32_t value) {
    std::memcpy(memories_[header_].data() + offset, &value, 4);
  }
  void flush() {
    char* header = memories_[header_].data();
    for (; !pending_.empty(); pending_.pop_front()) {
      if (!enabled_ || !bound_) continue;
      const Pending& r = pending_.front();
      const auto get = at<uint32_t>(header, 0), put = at<uint32_t>(header, 4);
      if ((put + 1) % count_ == get) {  // the oldest are kept
        const uint64_t dropped = at<uint64_t>(header, 16) + 1;
        std::memcpy(header + 16, &dropped, 8);
        ++seq_;
        continue;
      }
      char record[32] = {};
      record[8] = r.start ? 6 : 7;
      std::memcpy(record + 10, &seq_, 2);
      const uint32_t channel = 77;
      std::memcpy(record + 12, &channel, 4);
      std::memcpy(record + 16, &r.pid, 4);
      const uint64_t stamp = r.gpu_ns / 32 * 32;
      std::memcpy(record + 24, &stamp, 8);
      std::memcpy(memories_[records_].data() + size_t{put} * 32, record, 32);
      ++seq_;
      put_word(4, (put + 1) % count_);
    }
  }

  static constexpr uint32_t kClient = 0xc1d0'0042, kGpu = 0x1b00, kInstance = 3;
  int last_fd_ = 1000;
  std::map<int, std::string> files_;
  std::map<uint32_t, uint32_t> objects_;  // handle -> class
  std::map<uint32_t, std::vector<char>> memories_;
  std::map<int, uint32_t> prepared_;
  size_t mappings_ = 0;
  uint32_t buffer_ = 0, header_ = 0, records_ = 0, count_ = 1;
  bool enabled_ = false, bound_ = false;
  std::deque<Pending> pending_;
  uint16_t seq_ = 0;
};

}  // namespace sluice::test

// SPDX-License-Identifier: Apache-2.0
#include "mediator/gpu/driver_switch_log.h"

#include <fcntl.h>
#include <linux/ioctl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <iterator>

namespace sluice::gpu {
namespace {

class SystemDevice final : public DriverDevice {
 public:
  int open(const char* path) override { return ::open(path, O_RDWR | O_CLOEXEC); }
  int ioctl(int fd, unsigned long request, void* argument) override {
    return ::ioctl(fd, request, argument);
  }
  const void* map(int fd, size_t bytes) override {
    const void* p = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
    return p == MAP_FAILED ? nullptr : p;
  }
  void unmap(const void* mapping, size_t bytes) override {
    ::munmap(const_cast<void*>(mapping), bytes);
  }
  void close(int fd) override { ::close(fd); }
};

// ---- what the kernel driver is asked ---------------------------------------------------------
// Calls of its resource manager. Each takes one structure, which carries its own status back.

constexpr unsigned kMagic = 'F', kFree = 0x29, kControl = 0x2a, kAlloc = 0x2b, kMapMemory = 0x4e,
                   kRegisterFd = 201;

struct Allocation {
  uint32_t client, parent, handle, object_class;
  uint64_t parameters;  // their address
  uint32_t bytes, status;
};
static_assert(sizeof(Allocation) == 32);

struct Control {
  uint32_t client, object, command, flags;
  uint64_t parameters;
  uint32_t bytes, status;
};
static_assert(sizeof(Control) == 32);

struct MapMemory {
  uint32_t client, device, memory, padding;
  uint64_t offset, bytes, address;
  uint32_t status, flags;
  int32_t fd, padding_2;
};
static_assert(sizeof(MapMemory) == 56);
constexpr uint32_t kMapReadOnly = 1;

struct Free {
  uint32_t client, parent, handle, status;
};
static_assert(sizeof(Free) == 16);

// Classes of objects.
constexpr uint32_t kClient = 0x41, kDevice = 0x80, kSubdevice = 0x2080, kSystemMemory = 0x90ce,
                   kEventBuffer = 0x90cd;

struct DeviceParameters {
  uint32_t instance, share, target_client, target_device, flags, padding;
  uint64_t size, start, limit;
  uint32_t mode, padding_2;
};
static_assert(sizeof(DeviceParameters) == 56);

struct MemoryParameters {
  uint32_t owner, type, flags, width, height;
  int32_t pitch;
  uint32_t attributes, attributes_2, format, compression, z_cull, padding;
  uint64_t low, high, bytes, alignment, offset, limit, address;
  uint32_t tag_offset, address_space, internal_flags, tag;
  int32_t numa_node, padding_2;
};
static_assert(sizeof(MemoryParameters) == 128);
// The host's memory, cached by it; to be mapped by programs read only.
constexpr uint32_t kHostCached = 1u << 29 | 1u << 25, kReadOnlyForUsers = 1u << 22;

struct BufferParameters {
  uint64_t header, records;  // addresses, for the driver's own use
  uint32_t record_bytes, record_count;
  uint64_t variable;
  uint32_t variable_bytes, free_records_threshold;
  uint64_t notification;
  uint32_t free_bytes_threshold, subdevice, flags, header_memory, record_memory, variable_memory;
};
static_assert(sizeof(BufferParameters) == 72);

// Controls, and the parameters of each.
constexpr uint32_t kAttachedIds = 0x201, kIdInfo = 0x205, kTime = 0x20800403, kBind = 0x20801238,
                   kBindOld = 0x20801231, kEnable = 0x90cd0101, kUpdateGet = 0x90cd0102,
                   kFlush = 0x90cd0104;
constexpr uint32_t kMostGpus = 32, kNoGpu = 0xffffffffu;
struct AttachedIds {
  uint32_t ids[kMostGpus];
};
struct IdInfo {
  uint32_t id, flags, device_instance, subdevice_instance, sli, board, instance;
  int32_t numa_node;
};
static_assert(sizeof(IdInfo) == 32);
struct Bind {
  uint32_t buffer, record_bytes, detail, filter;
  uint8_t all_users, padding[3];
  uint32_t reason;
};
static_assert(sizeof(Bind) == 24);
constexpr uint32_t kBindOldBytes = 20, kStartsAndEnds = 1;
struct Enable {
  uint8_t enable, padding[3];
  uint32_t policy;
};
constexpr uint32_t kKeepOldest = 1;
struct UpdateGet {
  uint32_t records, variable;
};

// ---- what it writes --------------------------------------------------------------------------

struct BufferHeader {
  uint32_t get, put;
  uint64_t count, dropped, variable_dropped;
};
static_assert(sizeof(BufferHeader) == 32);
struct BufferRecord {
  uint16_t type, subtype;
  uint32_t variable;
  uint8_t tag, vmid;
  uint16_t seq;
  uint32_t channel, pid;
  uint16_t reserved;
  uint8_t gpu_instance, compute_instance;
  uint64_t time_ns;
};
static_assert(sizeof(BufferRecord) == 32);
constexpr uint8_t kStarts = 6, kEnds = 7;

// Our own handles; any numbers that differ.
enum Handle : uint32_t {
  kOurDevice = 0x5100'0001,
  kOurSubdevice,
  kOurHeader,
  kOurRecords,
  kOurBuffer,
};

constexpr size_t kHeaderBytes = 4096;

std::string hexadecimal(uint32_t n) {
  char text[16];
  std::snprintf(text, sizeof text, "0x%x", n);
  return text;
}

// Why a bind was refused, by the driver's own number.
const char* why_not_bound(uint32_t reason) {
  static constexpr const char* kReasons[] = {"",
                                             "this GPU has no such log",
                                             "not enabled on this GPU",
                                             "not enabled",
                                             "it takes root",
                                             "it takes a capability"};
  return reason < std::size(kReasons) ? kReasons[reason] : "";
}

}  // namespace

DriverDevice& system_driver_device() {
  static SystemDevice device;
  return device;
}

Result<std::unique_ptr<DriverSwitchLog>> DriverSwitchLog::open(DriverDevice& device,
                                                               uint32_t records,
                                                               std::vector<Step>* steps) {
  std::unique_ptr<DriverSwitchLog> log(new DriverSwitchLog(device, steps));
  if (auto made = log->set_up(records); !made) return made.error();
  log->steps_ = nullptr;
  return log;
}

// The kernel frees what the client has with it. Mappings and their files go on until then.
DriverSwitchLog::~DriverSwitchLog() {
  steps_ = nullptr;
  for (const Mapped* m : {&header_, &ring_})
    if (m->at != nullptr) device_.unmap(m->at, m->bytes);
  if (client_ != 0) {
    Free f{client_, 0, client_, 0};
    (void)call("free", control_fd_, _IOWR(kMagic, kFree, Free), &f, &f.status);
  }
  for (const int fd : {header_.fd, ring_.fd, gpu_fd_, control_fd_})
    if (fd >= 0) device_.close(fd);
}

Result<void> DriverSwitchLog::call(const char* what, int fd, unsigned long request, void* argument,
                                   const uint32_t* status) {
  const int r = device_.ioctl(fd, request, argument);
  const int error = r < 0 ? errno : 0;
  const uint32_t answer = status != nullptr && error == 0 ? *status : 0;
  if (steps_ != nullptr) steps_->push_back({what, error, answer});
  if (error != 0) return Error::from_errno(what, error);
  if (answer != 0)
    return Error{EIO, std::string(what) + ": the driver answers " + hexadecimal(answer)};
  return {};
}

Result<int> DriverSwitchLog::open_file(const char* path) {
  const int fd = device_.open(path);
  const int error = fd < 0 ? errno : 0;
  if (steps_ != nullptr) steps_->push_back({std::string("open ") + path, error, 0});
  if (error != 0) return Error::from_errno(path, error);
  return fd;
}

Result<void> DriverSwitchLog::make(const char* what, uint32_t parent, uint32_t handle,
                                   uint32_t object_class, void* parameters, uint32_t bytes) {
  Allocation a{client_, parent, handle, object_class, reinterpret_cast<uint64_t>(parameters),
               bytes,   0};
  auto made = call(what, control_fd_, _IOWR(kMagic, kAlloc, Allocation), &a, &a.status);
  if (made && object_class == kClient) client_ = a.handle;
  return made;
}

Result<void> DriverSwitchLog::control(const char* what, uint32_t object, uint32_t command,
                                      void* parameters, uint32_t bytes) {
  Control c{client_, object, command, 0, reinterpret_cast<uint64_t>(parameters), bytes, 0};
  return call(what, control_fd_, _IOWR(kMagic, kControl, Control), &c, &c.status);
}

// Of the one GPU. Where there are several nothing tells here which one workers have.
Result<uint32_t> DriverSwitchLog::device_instance() {
  AttachedIds attached{};
  if (auto r = control("list of GPUs", client_, kAttachedIds, &attached, sizeof attached); !r)
    return r.error();
  const auto count = std::count_if(std::begin(attached.ids), std::end(attached.ids),
                                   [](uint32_t id) { return id != kNoGpu; });
  if (count != 1)
    return Error{ENOTSUP, std::to_string(count) + " GPUs are in use here; the log is read of one"};
  IdInfo info{};
  info.id = *std::find_if(std::begin(attached.ids), std::end(attached.ids),
                          [](uint32_t id) { return id != kNoGpu; });
  if (auto r = control("number of the GPU", client_, kIdInfo, &info, sizeof info); !r)
    return r.error();
  return info.device_instance;
}

Result<void> DriverSwitchLog::make_memory(const char* what, uint32_t handle, uint64_t bytes) {
  MemoryParameters m{};
  m.attributes = kHostCached;
  m.attributes_2 = kReadOnlyForUsers;
  m.bytes = bytes;
  return make(what, client_, handle, kSystemMemory, &m, sizeof m);
}

Result<void> DriverSwitchLog::map_memory(const char* what, uint32_t handle, size_t bytes,
                                         Mapped& to) {
  auto fd = open_file("/dev/nvidiactl");
  if (!fd) return fd.error();
  to.fd = *fd;
  MapMemory m{};
  m.client = m.device = client_;
  m.memory = handle;
  m.bytes = bytes;
  m.flags = kMapReadOnly;
  m.fd = to.fd;
  if (auto r = call(what, control_fd_, _IOWR(kMagic, kMapMemory, MapMemory), &m, &m.status); !r)
    return r;
  to.at = device_.map(to.fd, bytes);
  const int error = to.at == nullptr ? errno : 0;
  if (steps_ != nullptr) steps_->push_back({std::string("mmap, ") + what, error, 0});
  if (error != 0) return Error::from_errno(std::string("mmap, ") + what, error);
  to.bytes = bytes;
  return {};
}

Result<void> DriverSwitchLog::bind(uint32_t) {
  Bind b{};
  b.buffer = kOurBuffer;
  b.record_bytes = sizeof(BufferRecord);
  b.detail = kStartsAndEnds;
  b.all_users = 1;
  auto bound = control("bind", kOurSubdevice, kBind, &b, sizeof b);
  if (bound) return {};
  const std::string reason = why_not_bound(b.reason);
  b.reason = 0;
  if (control("bind, as drivers before 550", kOurSubdevice, kBindOld, &b, kBindOldBytes)) return {};
  return Error{bound.error().code,
               bound.error().message + (reason.empty() ? "" : " (" + reason + ")")};
}

Result<void> DriverSwitchLog::set_up(uint32_t records) {
  auto control_file = open_file("/dev/nvidiactl");
  if (!control_file) return control_file.error();
  control_fd_ = *control_file;
  auto gpu_file = open_file("/dev/nvidia0");
  if (!gpu_file) return gpu_file.error();
  gpu_fd_ = *gpu_file;
  int32_t registered = control_fd_;
  if (auto r = call("register the GPU's file", gpu_fd_, _IOWR(kMagic, kRegisterFd, int32_t),
                    &registered, nullptr);
      !r)
    return r;
  if (auto r = make("client", 0, 0, kClient, nullptr, 0); !r) return r;
  auto instance = device_instance();
  if (!instance) return instance.error();
  DeviceParameters device{};
  device.instance = *instance;
  if (auto r = make("device", client_, kOurDevice, kDevice, &device, sizeof device); !r) return r;
  uint32_t subdevice = 0;
  if (auto r =
          make("subdevice", kOurDevice, kOurSubdevice, kSubdevice, &subdevice, sizeof subdevice);
      !r)
    return r;
  const size_t ring_bytes = size_t{records} * sizeof(BufferRecord);
  if (auto r = make_memory("memory of the header", kOurHeader, kHeaderBytes); !r) return r;
  if (auto r = make_memory("memory of the records", kOurRecords, ring_bytes); !r) return r;
  if (auto r = map_memory("map the header", kOurHeader, kHeaderBytes, header_); !r) return r;
  if (auto r = map_memory("map the records", kOurRecords, ring_bytes, ring_); !r) return r;
  // Never without a subdevice: drivers dereference it unchecked.
  BufferParameters buffer{};
  buffer.record_bytes = sizeof(BufferRecord);
  buffer.record_count = records;
  buffer.subdevice = kOurSubdevice;
  buffer.header_memory = kOurHeader;
  buffer.record_memory = kOurRecords;
  if (auto r = make("event buffer", client_, kOurBuffer, kEventBuffer, &buffer, sizeof buffer); !r)
    return r;
  Enable enable{1, {}, kKeepOldest};
  if (auto r = control("enable", kOurBuffer, kEnable, &enable, sizeof enable); !r) return r;
  if (auto r = bind(records); !r) return r;
  records_ = records;
  if (auto r = flush(); !r) return r;
  if (auto now = time_ns(); !now) return now.error();
  return {};
}

Result<void> DriverSwitchLog::flush() { return control("flush", kOurBuffer, kFlush, nullptr, 0); }

Result<uint64_t> DriverSwitchLog::time_ns() {
  uint64_t now = 0;
  if (auto r = control("the GPU's clock", kOurSubdevice, kTime, &now, sizeof now); !r)
    return r.error();
  return now;
}

Result<uint64_t> DriverSwitchLog::read(std::vector<Record>& records) {
  const auto* header = static_cast<const BufferHeader*>(header_.at);
  const auto* ring = static_cast<const BufferRecord*>(ring_.at);
  const uint32_t put = __atomic_load_n(&header->put, __ATOMIC_ACQUIRE);
  if (put >= records_) return Error{EIO, "the driver's ring of records is not one any more"};
  const bool any = get_ != put;
  while (get_ != put) {
    BufferRecord r;
    std::memcpy(&r, &ring[get_], sizeof r);
    get_ = get_ + 1 == records_ ? 0 : get_ + 1;
    if (r.tag == kStarts || r.tag == kEnds)
      records.push_back({r.time_ns, r.pid, r.channel, r.seq, r.tag == kStarts});
  }
  if (any) {
    UpdateGet update{get_, 0};
    if (auto r = control("make room", kOurBuffer, kUpdateGet, &update, sizeof update); !r)
      return r.error();
  }
  const uint64_t dropped = __atomic_load_n(&header->dropped, __ATOMIC_ACQUIRE);
  return dropped - std::exchange(dropped_, dropped);
}

}  // namespace sluice::gpu

// SPDX-License-Identifier: Apache-2.0
#include "mediator/gpu/switch_ring.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <atomic>

namespace sluice::gpu {
namespace {

constexpr uint64_t kRingMagic = 0x53776974'52696e67;
constexpr uint64_t kRecords = 16384;  // two seconds of 7,500 a second
constexpr size_t kRecordsAt = 4096;

}  // namespace

struct SwitchRingPage {
  uint64_t magic;
  uint64_t put;       // records that there have been
  uint64_t known_ns;  // see SwitchRingWriter::publish()
  uint64_t lost;
  uint64_t failed;
};

namespace {

constexpr size_t kBytes = kRecordsAt + kRecords * sizeof(SwitchEvent);
static_assert(sizeof(SwitchEvent) == 16);

const SwitchEvent* records_of(const SwitchRingPage* page) {
  return reinterpret_cast<const SwitchEvent*>(reinterpret_cast<const char*>(page) + kRecordsAt);
}

uint64_t load(const uint64_t& word) { return __atomic_load_n(&word, __ATOMIC_ACQUIRE); }
void store(uint64_t& word, uint64_t value) { __atomic_store_n(&word, value, __ATOMIC_RELEASE); }

}  // namespace

Result<SwitchRingWriter> SwitchRingWriter::make() {
  Fd file(::memfd_create("sluice-switch-log", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file) return Error::from_errno("memfd_create");
  if (::ftruncate(file.get(), kBytes) != 0) return Error::from_errno("ftruncate");
  void* p = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (p == MAP_FAILED) return Error::from_errno("mmap");
  SwitchRingWriter writer(std::move(file), static_cast<SwitchRingPage*>(p));
  // This mapping stays writable; no other one can be made.
  if (::fcntl(writer.fd(), F_ADD_SEALS,
              F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) != 0)
    return Error::from_errno("seal");
  store(writer.page_->magic, kRingMagic);
  return writer;
}

SwitchRingWriter::~SwitchRingWriter() {
  if (page_ != nullptr) ::munmap(page_, kBytes);
}

void SwitchRingWriter::add(const SwitchEvent& event) {
  const uint64_t put = page_->put;
  auto* to = const_cast<SwitchEvent*>(records_of(page_)) + put % kRecords;
  __atomic_store_n(&to->time_ns, event.time_ns, __ATOMIC_RELAXED);
  __atomic_store_n(&to->pid, event.pid, __ATOMIC_RELAXED);
  __atomic_store_n(&to->start, event.start, __ATOMIC_RELAXED);
  store(page_->put, put + 1);
}

void SwitchRingWriter::add_lost(uint64_t count) { store(page_->lost, page_->lost + count); }
void SwitchRingWriter::publish(uint64_t known_ns) { store(page_->known_ns, known_ns); }
void SwitchRingWriter::fail(int error) {
  store(page_->failed, static_cast<uint64_t>(error != 0 ? error : EIO));
}

Result<std::unique_ptr<SwitchRingReader>> SwitchRingReader::open(int fd) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) return Error::from_errno("the switch log's file");
  if (status.st_size < static_cast<off_t>(kBytes))
    return Error{EPROTO, "the switch log's file is too small"};
  Fd file(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!file) return Error::from_errno("the switch log's file");
  void* p = ::mmap(nullptr, kBytes, PROT_READ, MAP_SHARED, fd, 0);
  if (p == MAP_FAILED) return Error::from_errno("mapping the switch log");
  std::unique_ptr<SwitchRingReader> reader(
      new SwitchRingReader(std::move(file), static_cast<const SwitchRingPage*>(p)));
  if (load(reader->page_->magic) != kRingMagic)
    return Error{EPROTO, "the switch log's file is none of this version"};
  reader->next_ = load(reader->page_->put);
  reader->lost_ = load(reader->page_->lost);
  return reader;
}

Result<std::unique_ptr<SwitchRingReader>> SwitchRingReader::again() const {
  auto reader = open(file_.get());
  if (!reader) return reader.error();
  (*reader)->next_ = next_;
  (*reader)->lost_ = lost_;
  return reader;
}

SwitchRingReader::~SwitchRingReader() { ::munmap(const_cast<SwitchRingPage*>(page_), kBytes); }

uint64_t SwitchRingReader::known_ns() const { return load(page_->known_ns); }
int SwitchRingReader::failed() const { return static_cast<int>(load(page_->failed)); }

SwitchRingReader::News SwitchRingReader::read(std::vector<SwitchEvent>& events) {
  News news;
  news.known_ns = known_ns();  // before the records: those that come meanwhile are later
  news.failed = failed();
  const uint64_t lost = load(page_->lost), put = load(page_->put);
  news.lost = lost != lost_;
  lost_ = lost;
  for (;;) {
    if (put - next_ > kRecords) {
      news.lost = true;
      next_ = put - kRecords;
    }
    if (next_ == put) return news;
    const SwitchEvent& from = records_of(page_)[next_ % kRecords];
    const SwitchEvent event{__atomic_load_n(&from.time_ns, __ATOMIC_RELAXED),
                            __atomic_load_n(&from.pid, __ATOMIC_RELAXED),
                            __atomic_load_n(&from.start, __ATOMIC_RELAXED)};
    std::atomic_thread_fence(std::memory_order_acquire);
    if (load(page_->put) - next_ >= kRecords) {  // overwritten while it was read
      news.lost = true;
      ++next_;
      continue;
    }
    events.push_back(event);
    ++next_;
  }
}

}  // namespace sluice::gpu

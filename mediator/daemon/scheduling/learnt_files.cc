// SPDX-License-Identifier: Apache-2.0
#include "mediator/daemon/scheduling/learnt_files.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <filesystem>
#include <map>
#include <mutex>
#include <system_error>
#include <utility>
#include <vector>

#include "mediator/base/log.h"
#include "mediator/daemon/setup/state_file.h"

namespace sluice {

namespace {

// kMaxKernelsLearnt lines of some 700 bytes, and room.
constexpr size_t kMaxLearntBytes = 4u << 20;
constexpr const char* kSuffix = ".kernels";

// On the thread.
Result<core::Progress> read_learnt(const std::string& file) {
  auto text = read_state_file(file, kMaxLearntBytes);
  if (!text) return text.error();
  core::Progress known;
  if (auto restored = known.restore(*text); !restored) return restored.error();
  return known;
}

// On the thread. Removes the oldest of too many; what cannot be removed stays.
void keep_newest(const std::string& dir) {
  namespace fs = std::filesystem;
  std::vector<std::pair<fs::file_time_type, fs::path>> files;
  std::error_code error;
  for (fs::directory_iterator it(dir, error), end; !error && it != end; it.increment(error)) {
    if (it->path().extension() != kSuffix) continue;
    std::error_code of_file;
    const auto written = it->last_write_time(of_file);
    if (!of_file) files.emplace_back(written, it->path());
  }
  if (files.size() <= LearntFiles::kMostFiles) return;
  const auto newest =
      files.begin() + static_cast<ptrdiff_t>(files.size() - LearntFiles::kMostFiles);
  std::nth_element(files.begin(), newest, files.end());
  for (auto f = files.begin(); f != newest; ++f) fs::remove(f->second, error);
}

}  // namespace

std::string LearntFiles::name_of(const std::string& vgpu, const std::string& owner) {
  if (owner.empty()) return vgpu;
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const char c : owner) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash));
  return vgpu + "@" + text;
}

std::string LearntFiles::path(const std::string& vgpu) const { return dir_ + "/" + vgpu + kSuffix; }

// What will be written, by file.
struct LearntFiles::Writes {
  struct File {
    std::string text;
    bool newer = true;     // than what was last taken to be written
    bool writing = false;  // by some thread: two must not make the same new file
  };
  std::mutex mutex;
  std::condition_variable done;
  std::map<std::string, File> files;
  std::vector<std::string> errors;

  // On the thread. Whoever writes a file writes later texts of it, too.
  void write(const std::string& dir, const std::string& path) {
    std::unique_lock lock(mutex);
    const auto at = files.find(path);
    if (at == files.end() || at->second.writing) return;
    File& file = at->second;
    file.writing = true;
    while (std::exchange(file.newer, false)) {
      const std::string text = file.text;
      lock.unlock();
      auto written = replace_state_file(dir, path, text);
      if (written) keep_newest(dir);
      lock.lock();
      if (!written) errors.push_back(path + ": " + written.error().message);
    }
    files.erase(at);
    done.notify_all();
  }
};

LearntFiles::LearntFiles(boost::asio::io_context& io, std::string dir)
    : dir_(std::move(dir)), writes_(std::make_shared<Writes>()), disk_(io) {}

LearntFiles::~LearntFiles() {
  if (!finish(kFinishMs))
    log::warning("state_dir {}: the disk is slow; durations of kernels learnt last may be lost",
                 dir_);
}

void LearntFiles::load(const std::string& vgpu, Taker take) {
  if (dir_.empty()) return;
  const std::string file = path(vgpu);
  {
    std::unique_lock lock(writes_->mutex);
    if (auto it = writes_->files.find(file); it != writes_->files.end()) {
      const std::string text = it->second.text;
      lock.unlock();
      core::Progress known;
      (void)known.restore(text);  // our own words
      return take(std::move(known));
    }
  }
  const uint64_t reading = ++last_reading_;
  auto read = std::make_shared<Result<core::Progress>>(core::Progress());
  const bool taken = disk_.post([file, read] { *read = read_learnt(file); },
                                [this, vgpu, reading, read, take = std::move(take)] {
                                  on_read(vgpu, reading, std::move(*read), take);
                                });
  if (taken)
    reading_[vgpu] = reading;
  else
    log::warning("vgpu {}: {} is not read, too much waits for the disk", vgpu, file);
}

void LearntFiles::on_read(const std::string& vgpu, uint64_t reading, Result<core::Progress> read,
                          const Taker& take) {
  const auto it = reading_.find(vgpu);
  if (it == reading_.end() || it->second != reading) return;  // it has gone
  reading_.erase(it);
  if (read) return take(std::move(*read));
  if (read.error().code == ENOENT) return;
  log::warning("vgpu {}: {} is left aside, durations of kernels are learnt anew: {}", vgpu,
               path(vgpu), read.error().message);
}

void LearntFiles::save(const std::string& vgpu, const core::Progress& progress) {
  if (reading_.erase(vgpu) > 0) return;
  if (dir_.empty() || (progress.learnt() == 0 && progress.evicted() == 0)) return;
  const std::string file = path(vgpu);
  {
    std::lock_guard lock(writes_->mutex);
    Writes::File& f = writes_->files[file];
    f.text = progress.save();
    f.newer = true;
  }
  const bool taken = disk_.post([writes = writes_, dir = dir_, file] { writes->write(dir, file); },
                                [this] { log_errors(); });
  if (taken) return;
  std::lock_guard lock(writes_->mutex);
  const auto it = writes_->files.find(file);
  if (it == writes_->files.end() || it->second.writing) return;  // somebody writes it already
  writes_->files.erase(it);
  writes_->errors.push_back(file + ": too much waits for the disk");
}

bool LearntFiles::finish(uint64_t ms) {
  bool all;
  {
    std::unique_lock lock(writes_->mutex);
    all = writes_->done.wait_for(lock, std::chrono::milliseconds(ms),
                                 [&] { return writes_->files.empty(); });
  }
  log_errors();
  return all;
}

void LearntFiles::log_errors() {
  std::vector<std::string> errors;
  {
    std::lock_guard lock(writes_->mutex);
    errors.swap(writes_->errors);
  }
  for (const std::string& e : errors)
    log::warning("{}; durations of kernels learnt for its vGPU may be lost", e);
}

}  // namespace sluice

// SPDX-License-Identifier: Apache-2.0
// What sluiced keeps of kernels' durations between two lives
// (mediator/daemon/scheduling/learnt_files.h).
#include "mediator/daemon/scheduling/learnt_files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <vector>

namespace {

// What is asked of the disk, in order: file names without their folder.
std::vector<std::string> disk_calls;
bool fsync_fails = false;

constexpr uint64_t kPatienceMs = 120'000;

// fsync and read wait while this is closed, as on a disk that hangs.
std::mutex gate;
std::condition_variable gate_changed;
bool gate_closed = false;
size_t at_gate = 0;
void note(const std::string& call) {
  std::lock_guard lock(gate);
  disk_calls.push_back(call);
}
void hang_the_disk() {
  std::lock_guard lock(gate);
  gate_closed = true;
}
void wait_for_hang() {
  std::unique_lock lock(gate);
  gate_changed.wait(lock, [] { return at_gate > 0; });
}
void release_disk() {
  std::lock_guard lock(gate);
  gate_closed = false;
  gate_changed.notify_all();
}
void pass_gate() {
  std::unique_lock lock(gate);
  ++at_gate;
  gate_changed.notify_all();
  gate_changed.wait(lock, [] { return !gate_closed; });
  --at_gate;
}

// Reads of what is kept, in the loop's thread: none.
std::atomic<size_t> reads_in_loop{0};
std::atomic<size_t> reads_elsewhere{0};

std::string last_of(const std::string& path) { return path.substr(path.rfind('/') + 1); }

}  // namespace

// Instead of libc's: in this program the calls are written down first.
extern "C" int fsync(int fd) {
  char path[4096] = {};
  if (::readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), path, sizeof path - 1) < 0)
    return -1;
  note("fsync " + last_of(path));
  pass_gate();
  if (fsync_fails) errno = EIO;
  return fsync_fails ? -1 : static_cast<int>(::syscall(SYS_fsync, fd));
}
extern "C" ssize_t read(int fd, void* data, size_t bytes) {
  char path[4096] = {};
  const ssize_t n = ::readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), path, 4095);
  if (n > 0 && last_of(path) == "slow.kernels") {
    (::gettid() == ::getpid() ? reads_in_loop : reads_elsewhere)++;
    pass_gate();
  }
  return ::syscall(SYS_read, fd, data, bytes);
}
extern "C" int rename(const char* from, const char* to) noexcept {
  note("rename " + last_of(from) + " " + last_of(to));
  return static_cast<int>(::syscall(SYS_renameat, AT_FDCWD, from, AT_FDCWD, to));
}

namespace sluice {
namespace {

namespace fs = std::filesystem;

class LearntFilesTest : public testing::Test {
 protected:
  LearntFilesTest() {
    std::string name = testing::TempDir() + "/sluice-learnt-XXXXXX";
    parent = ::mkdtemp(name.data());
    dir = parent + "/state";
  }
  ~LearntFilesTest() override { fs::remove_all(parent); }

  // Launches of kernel 7 that took 500 ns a task.
  static core::Progress taught() {
    core::Progress p;
    auto area = std::make_unique<sluice_launch_records>();
    for (uint64_t id = 1; id <= 40; ++id) {
      sluice_launch_record& r = area->records[0];
      r.state = SLUICE_LAUNCH_DONE;
      r.tasks_total = r.tasks_done = r.tasks_fetched = static_cast<uint32_t>(1000 + id % 4 * 1000);
      r.launch_id = id;
      r.start_ns = 1000;
      r.left_ns = r.start_ns + r.tasks_total * 500ull;
      r.opaque = 7 << 1;
      p.learn(1, *area);
    }
    return p;
  }
  // What is predicted of 2,000 tasks of kernel 7 that have not begun; 0: nothing.
  static uint64_t predicted(const core::Progress& p) {
    auto area = std::make_unique<sluice_launch_records>();
    area->records[0].state = SLUICE_LAUNCH_RUNNING;
    area->records[0].tasks_total = 2000;
    area->records[0].launch_id = 1;
    area->records[0].opaque = 7 << 1;
    core::ProgressSums sums;
    p.add(*area, &sums);
    return sums.remaining_ns;
  }
  static void put(const std::string& path, const std::string& text) { std::ofstream(path) << text; }
  static std::string get(const std::string& path) {
    std::ostringstream s;
    s << std::ifstream(path).rdbuf();
    return s.str();
  }

  // One that has written all when the statement ends.
  LearntFiles files() { return LearntFiles(io, dir); }
  core::Progress loaded(const std::string& vgpu) {
    LearntFiles files(io, dir);
    core::Progress known;
    files.load(vgpu, [&](core::Progress p) { known = std::move(p); });
    EXPECT_TRUE(run_until([&] { return !files.reading(); }));
    return known;
  }
  bool run_until(const std::function<bool()>& condition) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(kPatienceMs);
    while (!condition()) {
      if (std::chrono::steady_clock::now() > end) return false;
      io.run_one_for(std::chrono::milliseconds(5));
      io.restart();
    }
    return true;
  }

  boost::asio::io_context io;
  std::string parent, dir;
};

TEST_F(LearntFilesTest, ADiskThatHangsKeepsNobodyWaiting) {
  LearntFiles first(io, dir);
  hang_the_disk();
  first.save("vm1", taught());  // would not return
  wait_for_hang();
  core::Progress more = taught(), read;
  more.learn_evictions(1, 100'000);
  first.save("vm1", more);
  first.save("vm2", taught());
  EXPECT_FALSE(first.finish(50));
  first.load("vm1", [&](core::Progress known) { read = std::move(known); });
  EXPECT_EQ(read.save(), more.save()) << "the last text that was saved, though no file is there";
  EXPECT_FALSE(fs::exists(dir + "/vm1.kernels"));
  release_disk();
  ASSERT_TRUE(first.finish(kPatienceMs));
  EXPECT_EQ(get(dir + "/vm1.kernels"), more.save());
  EXPECT_EQ(get(dir + "/vm2.kernels"), taught().save());
}

TEST_F(LearntFilesTest, ADiskThatHangsInReadingKeepsNobodyWaiting) {
  files().save("slow", taught());
  const std::string whole = get(dir + "/slow.kernels");
  LearntFiles files(io, dir);
  hang_the_disk();
  files.load("slow", [](core::Progress) { FAIL() << "its vGPU has gone"; });  // would not return
  wait_for_hang();
  EXPECT_EQ(reads_in_loop, 0u);
  // The vGPU goes, and what it learnt meanwhile is less than what is kept.
  core::Progress more = taught();
  more.learn_evictions(1, 100'000);
  files.save("slow", more);
  // Another one of its name comes.
  size_t handed_over = 0;
  files.load("slow", [&](core::Progress p) {
    EXPECT_EQ(p.save(), whole);
    ++handed_over;
  });
  release_disk();
  EXPECT_TRUE(run_until([&] { return handed_over > 0; }));
  EXPECT_FALSE(files.reading());
  EXPECT_EQ(get(dir + "/slow.kernels"), whole);
  EXPECT_EQ(reads_in_loop, 0u);
  EXPECT_GT(reads_elsewhere, 0u);
}

TEST_F(LearntFilesTest, WhatOneLifeLearntTheNextPredicts) {
  const core::Progress before = taught();
  files().save("vm1", before);
  core::Progress after, other;
  after = loaded("vm1");
  other = loaded("vm2");
  EXPECT_NEAR(static_cast<double>(predicted(before)), 1'000'000, 50'000);
  EXPECT_EQ(predicted(after), predicted(before));
  EXPECT_EQ(other.learnt(), 0u);
  struct stat s;
  ASSERT_EQ(::stat((dir + "/vm1.kernels").c_str(), &s), 0);
  EXPECT_EQ(s.st_mode & 0777, 0600u);
  EXPECT_FALSE(fs::exists(dir + "/vm1.kernels.new"));
}

// Whoever gets a name after somebody else is predicted nothing by what that one's kernels did.
TEST_F(LearntFilesTest, AnotherOwnersVgpuOfTheNameLearnsAnew) {
  const std::string first = LearntFiles::name_of("vm1", "libvirt:1"),
                    second = LearntFiles::name_of("vm1", "libvirt:2");
  files().save(first, taught());
  EXPECT_EQ(loaded(second).learnt(), 0u);
  EXPECT_EQ(loaded(LearntFiles::name_of("vm1", "")).learnt(), 0u);
  EXPECT_EQ(loaded(first).learnt(), 1u);
  // No name of a vGPU is another's with an owner, and no owner says where the file is.
  EXPECT_NE(first.find('@'), std::string::npos);
  EXPECT_EQ(LearntFiles::name_of("a", "../../x/y").find('/'), std::string::npos);
}

TEST_F(LearntFilesTest, NamesWithoutEndDoNotFillTheDisk) {
  fs::create_directory(dir);
  put(dir + "/groups", "another's");
  const auto now = fs::file_time_type::clock::now();
  constexpr size_t kMore = 10;
  for (size_t i = 0; i < LearntFiles::kMostFiles + kMore; ++i) {
    const std::string file = dir + "/pod-" + std::to_string(i) + ".kernels";
    put(file, "");
    fs::last_write_time(file, now - std::chrono::hours(1000 - i));
  }
  files().save("vm1", taught());
  size_t left = 0;
  for (const auto& f : fs::directory_iterator(dir)) left += f.path().extension() == ".kernels";
  EXPECT_EQ(left, LearntFiles::kMostFiles);
  EXPECT_TRUE(fs::exists(dir + "/vm1.kernels"));
  EXPECT_TRUE(fs::exists(dir + "/groups"));
  EXPECT_FALSE(fs::exists(dir + "/pod-10.kernels")) << "the oldest go";
  EXPECT_TRUE(fs::exists(dir + "/pod-11.kernels"));
}

TEST_F(LearntFilesTest, AStopOfTheMachineLeavesTheOldOrTheNew) {
  disk_calls.clear();
  files().save("vm1", taught());
  EXPECT_EQ(disk_calls,
            (std::vector<std::string>{"fsync vm1.kernels.new", "rename vm1.kernels.new vm1.kernels",
                                      "fsync state"}));
  const std::string before = get(dir + "/vm1.kernels");
  core::Progress more = taught();
  more.learn_evictions(1, 100'000);
  fsync_fails = true;
  disk_calls.clear();
  files().save("vm1", more);
  fsync_fails = false;
  EXPECT_EQ(disk_calls, std::vector<std::string>{"fsync vm1.kernels.new"})
      << "what may not be there is given no name";
  EXPECT_EQ(get(dir + "/vm1.kernels"), before);
  EXPECT_FALSE(fs::exists(dir + "/vm1.kernels.new"));
}

TEST_F(LearntFilesTest, NothingIsKeptWithoutADirectoryOrWithoutKnowledge) {
  LearntFiles(io, "").save("vm1", taught());
  files().save("vm1", core::Progress());
  EXPECT_FALSE(fs::exists(dir));
  EXPECT_FALSE(fs::exists("/vm1.kernels"));
}

TEST_F(LearntFilesTest, CostsAreKeptWhereNothingEverRanInOnePiece) {
  core::Progress before, after;
  auto area = std::make_unique<sluice_launch_records>();
  sluice_launch_record& r = area->records[0];
  r.state = SLUICE_LAUNCH_DONE;
  r.tasks_total = r.tasks_done = r.tasks_fetched = 1000;
  r.launch_id = 1;
  r.evictions = 1;
  r.opaque = 7 << 1;
  before.learn(1, *area);
  before.learn_evictions(1, 100'000);
  ASSERT_EQ(before.learnt(), 0u);
  ASSERT_EQ(before.evicted(), 1u);
  files().save("vm1", before);
  after = loaded("vm1");
  EXPECT_EQ(after.evicted(), 1u);
}

TEST_F(LearntFilesTest, DamagedFilesAreLeftAside) {
  LearntFiles files(io, dir);
  files.save("vm1", taught());
  ASSERT_TRUE(files.finish(kPatienceMs));
  const std::string path = dir + "/vm1.kernels", whole = get(path);
  for (const std::string& text :
       {std::string(), std::string("no such format\n"), whole.substr(0, whole.size() / 2),
        whole + "7 7 7\n", std::string(5u << 20, 'x'), std::string(100, '\0')}) {
    put(path, text);
    const core::Progress p = loaded("vm1");
    EXPECT_EQ(p.learnt(), 0u) << text.substr(0, 40);
    EXPECT_EQ(get(path).size(), text.size()) << "left as it was";
  }
  files.save("vm1", taught());  // and replaced once something was learnt
  ASSERT_TRUE(files.finish(kPatienceMs));
  EXPECT_EQ(get(path), whole);
}

TEST_F(LearntFilesTest, TooManyKernelsAreRefused) {
  const std::string one = taught().save();
  const size_t header = one.find('\n') + 1, key = one.find('7', header);
  std::string many = one.substr(0, header);
  for (size_t i = 0; i <= core::kMaxKernelsLearnt; ++i)
    many += one.substr(header, key - header) + std::to_string(i) + one.substr(key + 1);
  core::Progress p;
  auto taken = p.restore(many);
  ASSERT_FALSE(taken.ok());
  EXPECT_NE(taken.error().message.find("at most 1024"), std::string::npos) << taken.error().message;
  EXPECT_EQ(p.learnt(), 0u);
}

TEST_F(LearntFilesTest, WhatIsNoFileStopsNobody) {
  LearntFiles files(io, dir);
  ASSERT_EQ(::mkdir(dir.c_str(), 0700), 0);
  ASSERT_EQ(::mkfifo((dir + "/pipe.kernels").c_str(), 0600), 0);
  ASSERT_EQ(::mkdir((dir + "/folder.kernels").c_str(), 0700), 0);
  put(dir + "/target", taught().save());
  ASSERT_EQ(::symlink((dir + "/target").c_str(), (dir + "/link.kernels").c_str()), 0);
  for (const char* vgpu : {"pipe", "folder", "link"}) {
    const core::Progress p = loaded(vgpu);
    EXPECT_EQ(p.learnt(), 0u) << vgpu;
  }
  files.save("folder", taught());  // cannot replace a folder, says so, and leaves nothing behind
  ASSERT_TRUE(files.finish(kPatienceMs));
  EXPECT_FALSE(fs::exists(dir + "/folder.kernels.new"));
  LearntFiles(io, parent + "/no/such").save("vm1", taught());
  EXPECT_FALSE(fs::exists(parent + "/no"));
}

}  // namespace
}  // namespace sluice

// SPDX-License-Identifier: Apache-2.0
// The file through which processes share a software GPU: queue, liveness, accounting, registers.
// Two SharedGpu objects on one file are to each other as two processes are; death is a real one.
#include "mediator/softgpu/shared/shared_gpu.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <numeric>
#include <random>

#include "mediator/base/unix_socket.h"
#include "mediator/gpu/soft_gpu.h"
#include "mediator/softgpu/memory/arena.h"

namespace sluice::softgpu {
namespace {

SharedGpu::Urgencies on(const SmSet& set, uint8_t urgency = kLeastUrgent) {
  SharedGpu::Urgencies at{};
  for (uint32_t sm = 0; sm < kMaxSms; ++sm) at[sm] = set[sm] ? urgency : 0;
  return at;
}

class SharedGpuTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/sluice-gpu-XXXXXX";
    Fd fd(::mkstemp(name));
    path_ = name;
    ::unlink(name);
    config_.gpu_file = path_;
    config_.memory_bytes = 1 << 20;
  }
  void TearDown() override { ::unlink(path_.c_str()); }

  std::unique_ptr<SharedGpu> open() {
    auto gpu = SharedGpu::open(config_);
    EXPECT_TRUE(gpu.ok()) << (gpu.ok() ? "" : gpu.error().message);
    return gpu.ok() ? *std::move(gpu) : nullptr;
  }

  // What a reader of registers sees, through a mapping of its own, found as on a real GPU.
  uint32_t status0() {
    Fd fd(::open(path_.c_str(), O_RDONLY));
    void* p = ::mmap(nullptr, kGpuFileBytes, PROT_READ, MAP_SHARED, fd.get(), 0);
    uint32_t row[3], value;
    std::memcpy(row, static_cast<char*>(p) + SLUICE_REG_PTOP_DEVICE_INFO2, sizeof row);
    EXPECT_TRUE(row[0] >> 31 && row[1] >> 31 && !(row[2] >> 31)) << "the row's words are chained";
    const uint32_t runlist_base = ((row[2] >> 10) & 0xffff) << 10;
    std::memcpy(&value, static_cast<char*>(p) + SLUICE_REG_ENGINE_STATUS0(runlist_base, 0),
                sizeof value);
    ::munmap(p, kGpuFileBytes);
    return value;
  }

  std::string path_;
  Config config_;
};

// Runs `body` in a child that says over a pipe that it is ready and then waits to be killed.
pid_t start_child(const std::function<void()>& body) {
  int ready[2];
  EXPECT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    body();
    if (::write(ready[1], "x", 1) != 1) ::_exit(1);
    for (;;) ::pause();
  }
  char byte;
  EXPECT_EQ(::read(ready[0], &byte, 1), 1);
  ::close(ready[0]);
  ::close(ready[1]);
  return child;
}

void kill_child(pid_t child) {
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

TEST_F(SharedGpuTest, TheCreatorDecidesForAll) {
  config_.sms = 7;
  auto a = open();
  config_.sms = 3;
  config_.memory_bytes = 1 << 21;
  auto b = open();
  EXPECT_EQ(b->sms(), 7u);
  EXPECT_EQ(b->memory_bytes(), 1u << 20);
}

TEST_F(SharedGpuTest, AForeignFileIsLeftAlone) {
  std::ofstream(path_) << "precious";
  EXPECT_FALSE(SharedGpu::open(config_).ok());
  std::string text;
  std::ifstream(path_) >> text;
  EXPECT_EQ(text, "precious");
}

// Somebody who may write the file writes anything: those who use it get wrong numbers, no more.
TEST_F(SharedGpuTest, GarbageInTheFileLeadsNobodyAstray) {
  std::minstd_rand random(3);
  for (const uint32_t mode : {SLUICE_SOFT_FCFS, SLUICE_SOFT_TIMESLICE, SLUICE_SOFT_MPS}) {
    config_.mode = mode;
    auto a = open();
    ASSERT_TRUE(a);
    const uint32_t sms = a->sms();
    auto reader = gpu::SoftGpu::open(path_, true);
    ASSERT_TRUE(reader.ok()) << reader.error().message;
    const SmLimits limits = a->model().sm;
    const Fd fd(::open(path_.c_str(), O_RDWR));
    std::vector<uint32_t> garbage(kGpuFileBytes / 4);
    for (int round = 0; round < 20; ++round) {
      const auto slot = a->join();
      // From the second quarter on words of all ones, which name the last of everything and more.
      for (uint32_t& word : garbage)
        word = round < 5           ? static_cast<uint32_t>(random()) * 2654435761u
               : random() % 3 == 0 ? 0xffffffffu
                                   : static_cast<uint32_t>(random() % 70);
      ASSERT_EQ(::pwrite(fd.get(), garbage.data(), kGpuFileBytes, 0), ssize_t{kGpuFileBytes});
      if (!slot) continue;
      a->request(*slot);
      (void)a->try_acquire(*slot);
      (void)a->try_acquire(*slot, true);
      (void)a->begin_switch(*slot);
      a->begin_restore(*slot);
      a->show_running(*slot);
      a->nudge_holder();
      (void)a->holders_slice_left_ns();
      (void)a->reserve_memory(*slot, 4096);
      a->release_memory(*slot, 8192);
      (void)a->free_memory();
      for (uint32_t sm = 0; sm < sms; ++sm) {
        (void)a->may_use(*slot, sm);
        if (a->claim(sm, limits, {64, 128, 32, 1})) a->unclaim(sm, {64, 128, 32, 1});
      }
      a->mark_starved(on(SmSet().set()));
      a->clear_starved();
      a->start_beside(*slot);
      a->end_beside(*slot);
      a->eject_absent();
      a->begin_save(*slot);
      a->release_saved(*slot);
      a->release(*slot);
      a->leave(*slot);
      EXPECT_EQ(a->sms(), sms) << "what the GPU is like was settled at the start";
      std::vector<gpu::SoftGpu::SwitchRecord> records;
      (void)(*reader)->read_log(records);
      EXPECT_LE(records.size(), size_t{SLUICE_SOFT_LOG_RECORDS});
      for (const uint32_t group : {0u, 1u, 64u, 65u, 0x800u, 0xffffffffu}) {
        (void)(*reader)->channel(group);
        (*reader)->preempt(group);
        (*reader)->set_timeslice(group, 0);
        (*reader)->set_sms(group, {~uint64_t{0}, 0, 0, 0});
      }
    }
    EXPECT_FALSE(SharedGpu::open(config_).ok()) << "its magic is gone";
    a.reset();
    ::unlink(path_.c_str());
  }
}

TEST_F(SharedGpuTest, AFileWhoseCreatorDiedBeforeItsEndIsMadeAnew) {
  Fd fd(::open(path_.c_str(), O_RDWR | O_CREAT, 0600));
  ASSERT_EQ(::ftruncate(fd.get(), kGpuFileBytes), 0);
  const char garbage[] = "half a row";
  ASSERT_GT(::pwrite(fd.get(), garbage, sizeof garbage, SLUICE_REG_PTOP_DEVICE_INFO2), 0);
  auto gpu = open();
  ASSERT_NE(gpu, nullptr);
  EXPECT_EQ(status0(), 0u);
}

TEST_F(SharedGpuTest, EachContextHasItsSlotUntilAllAreTaken) {
  auto a = open(), b = open();
  std::vector<unsigned> slots;
  for (unsigned i = 0; i < kMaxContexts; ++i) {
    auto slot = (i % 2 ? a : b)->join();
    ASSERT_TRUE(slot.ok());
    EXPECT_EQ(std::count(slots.begin(), slots.end(), *slot), 0);
    slots.push_back(*slot);
  }
  EXPECT_FALSE(a->join().ok());
  b->leave(slots[0]);
  EXPECT_TRUE(a->join().ok());
}

TEST_F(SharedGpuTest, TheEngineGoesToWhoStoodInLineFirst) {
  auto a = open(), b = open(), c = open();
  const unsigned sa = *a->join(), sb = *b->join(), sc = *c->join();
  a->request(sa);
  ASSERT_TRUE(a->try_acquire(sa));
  c->request(sc);
  b->request(sb);
  EXPECT_FALSE(b->try_acquire(sb)) << "taken";
  EXPECT_TRUE(a->others_waiting(sa));
  const uint32_t bell_b = b->bell(), bell_c = c->bell();
  a->release(sa);
  EXPECT_EQ(b->bell(), bell_b) << "only the next is called";
  EXPECT_NE(c->bell(), bell_c);
  a->request(sa);
  EXPECT_FALSE(a->try_acquire(sa)) << "others were first";
  EXPECT_FALSE(b->try_acquire(sb)) << "c was first";
  ASSERT_TRUE(c->try_acquire(sc));
  c->release(sc);
  ASSERT_TRUE(b->try_acquire(sb));
  b->release(sb);
  ASSERT_TRUE(a->try_acquire(sa));
  EXPECT_FALSE(a->others_waiting(sa));
  a->release(sa);
}

TEST_F(SharedGpuTest, RegistersTellWhoRuns) {
  auto a = open(), b = open();
  const unsigned sa = *a->join(), sb = *b->join();
  EXPECT_EQ(SLUICE_STATUS0_CTX_STATUS(status0()), uint32_t{SLUICE_CTX_INVALID});
  const uint32_t ta = SharedGpu::tsgid(sa), tb = SharedGpu::tsgid(sb);
  a->request(sa);
  ASSERT_TRUE(a->try_acquire(sa));
  EXPECT_EQ(a->begin_switch(sa), 0u) << "nobody's state is in the way";
  a->show_running(sa);
  EXPECT_EQ(status0(), SLUICE_STATUS0(ta, SLUICE_CTX_VALID, 0, 1));
  a->release(sa);
  EXPECT_EQ(status0(), SLUICE_STATUS0(ta, SLUICE_CTX_VALID, 0, 0)) << "resident, idle";
  b->request(sb);
  ASSERT_TRUE(b->try_acquire(sb));
  EXPECT_EQ(b->begin_switch(sb), config_.switch_fixed_ns);
  EXPECT_EQ(status0(), SLUICE_STATUS0(ta, SLUICE_CTX_SWITCH, tb, 1));
  b->show_running(sb);
  EXPECT_EQ(status0(), SLUICE_STATUS0(tb, SLUICE_CTX_VALID, 0, 1));
  a->request(sa);
  b->begin_save(sb);
  EXPECT_EQ(status0(), SLUICE_STATUS0(tb, SLUICE_CTX_SAVE, ta, 1));
  b->release_saved(sb);
  EXPECT_EQ(status0(), SLUICE_STATUS0(tb, SLUICE_CTX_SWITCH, ta, 1));
  ASSERT_TRUE(a->try_acquire(sa));
  EXPECT_EQ(a->begin_switch(sa), config_.switch_fixed_ns);
  a->begin_restore(sa);
  EXPECT_EQ(status0(), SLUICE_STATUS0(ta, SLUICE_CTX_LOAD, ta, 1));
  a->show_running(sa);
  EXPECT_EQ(status0(), SLUICE_STATUS0(ta, SLUICE_CTX_VALID, 0, 1));
  a->release(sa);
  a->request(sa);
  ASSERT_TRUE(a->try_acquire(sa));
  EXPECT_EQ(a->begin_switch(sa), 0u) << "its state is still there";
  a->show_running(sa);
  a->release(sa);
  b->request(sb);
  ASSERT_TRUE(b->try_acquire(sb));
  b->begin_switch(sb);
  b->show_running(sb);
  b->release(sb);
  b->leave(sb);
  EXPECT_EQ(SLUICE_STATUS0_CTX_STATUS(status0()), uint32_t{SLUICE_CTX_INVALID});
}

TEST_F(SharedGpuTest, ADeadHolderIsEjected) {
  auto a = open();
  const unsigned sa = *a->join();
  const pid_t child = start_child([&] {
    auto gpu = SharedGpu::open(config_);
    const unsigned slot = *(*gpu)->join();
    (*gpu)->request(slot);
    if (!(*gpu)->try_acquire(slot)) ::_exit(1);
    (void)gpu->release();  // keep it open
  });
  a->request(sa);
  EXPECT_FALSE(a->try_acquire(sa));
  a->eject_absent();
  EXPECT_FALSE(a->try_acquire(sa)) << "alive";
  kill_child(child);
  EXPECT_FALSE(a->try_acquire(sa)) << "dead, but nobody has looked";
  a->eject_absent();
  EXPECT_EQ(SLUICE_STATUS0_CTX_STATUS(status0()), uint32_t{SLUICE_CTX_INVALID});
  EXPECT_TRUE(a->try_acquire(sa));
}

TEST_F(SharedGpuTest, ADeadContenderLosesItsPlace) {
  auto a = open(), b = open();
  const unsigned sa = *a->join(), sb = *b->join();
  a->request(sa);
  ASSERT_TRUE(a->try_acquire(sa));
  const pid_t child = start_child([&] {
    auto gpu = SharedGpu::open(config_);
    (*gpu)->request(*(*gpu)->join());
    (void)gpu->release();
  });
  b->request(sb);
  kill_child(child);
  a->release(sa);
  EXPECT_FALSE(b->try_acquire(sb)) << "the dead one is first";
  EXPECT_TRUE(b->try_acquire(sb, true)) << "out of turn";
  b->release(sb);
  b->request(sb);
  b->eject_absent();
  EXPECT_TRUE(b->try_acquire(sb));
}

TEST_F(SharedGpuTest, ANewOwnerOfADeadHoldersSlotIsNotTheHolder) {
  auto a = open();
  const unsigned sa = *a->join();
  const pid_t child = start_child([&] {
    auto gpu = SharedGpu::open(config_);
    const unsigned slot = *(*gpu)->join();
    (*gpu)->request(slot);
    (void)(*gpu)->try_acquire(slot);
    (void)gpu->release();
  });
  EXPECT_FALSE(a->engine_free());
  kill_child(child);
  auto b = open();
  const unsigned sb = *b->join();
  EXPECT_NE(sb, sa);
  EXPECT_TRUE(b->engine_free());
}

TEST_F(SharedGpuTest, MemoryIsSharedAndADeadOnesComesBack) {
  auto a = open();
  const unsigned sa = *a->join();
  EXPECT_TRUE(a->reserve_memory(sa, 1 << 19));
  EXPECT_FALSE(a->reserve_memory(sa, (1 << 19) + 1));
  const pid_t child = start_child([&] {
    auto gpu = SharedGpu::open(config_);
    if (!(*gpu)->reserve_memory(*(*gpu)->join(), 1 << 18)) ::_exit(1);
    (void)gpu->release();
  });
  EXPECT_EQ(a->free_memory(), 1u << 18);
  EXPECT_FALSE(a->reserve_memory(sa, 1 << 19));
  kill_child(child);
  EXPECT_EQ(a->free_memory(), 1u << 19);
  EXPECT_TRUE(a->reserve_memory(sa, 1 << 19));
  a->release_memory(sa, 1 << 20);
  EXPECT_EQ(a->free_memory(), 1u << 20);
}

TEST_F(SharedGpuTest, AnSmIsNeverGivenOutTwice) {
  config_.mode = SLUICE_SOFT_MPS;
  auto a = open(), b = open();
  SmLimits limits;
  limits.blocks = 4;
  const SmClaim quarter{16384, 1024, 256, 1};
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(a->claim(1, limits, quarter));
  EXPECT_TRUE(b->claim(1, limits, quarter));
  EXPECT_FALSE(b->claim(1, limits, quarter)) << "registers and blocks are used up";
  EXPECT_TRUE(b->claim(0, limits, quarter)) << "another SM";
  a->unclaim(1, quarter);
  EXPECT_TRUE(b->claim(1, limits, quarter));
  EXPECT_FALSE(a->claim(1, limits, {256, 0, 32, 1}));
  b->drop_claims();
  EXPECT_TRUE(a->claim(1, limits, {256, 0, 32, 1}));
}

TEST_F(SharedGpuTest, WhoGathersSmsHasThemAllOrNone) {
  config_.mode = SLUICE_SOFT_MPS;
  auto a = open(), b = open();
  const SmLimits limits;
  const SmClaim block{8192, 1024, 256, 1};
  const SmSet low(0b0011), middle(0b0110), high(0b1100);
  EXPECT_TRUE(a->gather(low));
  EXPECT_TRUE(a->gather(low)) << "it has them";
  EXPECT_FALSE(b->gather(middle));
  EXPECT_TRUE(a->claim(2, limits, block)) << "of which b has kept nothing";
  EXPECT_FALSE(b->claim(1, limits, block));
  EXPECT_TRUE(a->claim(1, limits, block));
  EXPECT_TRUE(b->gather(high)) << "that does not meet";
  EXPECT_FALSE(a->claim(2, limits, block));
  EXPECT_TRUE(b->claim(2, limits, block));
  b->mark_starved(on(SmSet().set(1)));
  const uint32_t bell = b->bell();
  a->gathered(low);
  EXPECT_NE(b->bell(), bell) << "b is notified";
  EXPECT_TRUE(b->gather(middle));
  b->drop_claims();
  EXPECT_TRUE(a->claim(2, limits, block)) << "who leaves lets go";
}

// Else one cooperative grid after the other would keep an urgent kernel waiting.
TEST_F(SharedGpuTest, NobodyBeginsToGatherWhereAMoreUrgentOneWaits) {
  config_.mode = SLUICE_SOFT_MPS;
  auto a = open(), b = open();
  const SmSet low(0b0011), high(0b1100);
  const Rank first{kLeastUrgent, a->take_order()}, second{kLeastUrgent, a->take_order()};
  EXPECT_TRUE(a->gather(low, second));
  b->mark_starved(on(SmSet().set(1)), first.order);
  EXPECT_TRUE(a->gather(low, second)) << "it has begun";
  a->gathered(low);
  EXPECT_FALSE(a->gather(low, second));
  EXPECT_TRUE(a->gather(high, second)) << "where nobody waits";
  EXPECT_TRUE(b->gather(low, first)) << "it let go of what it had";
}

TEST_F(SharedGpuTest, OfEqualsWhoCameFirstGetsTheRoomThatComesFree) {
  config_.mode = SLUICE_SOFT_MPS;
  auto a = open(), b = open();
  const SmLimits limits;
  const SmClaim eighth{8192, 1024, 256, 1};
  const Rank first{kLeastUrgent, a->take_order()}, second{kLeastUrgent, b->take_order()},
      third{kLeastUrgent, a->take_order()};
  for (int i = 0; i < 8; ++i) EXPECT_TRUE(a->claim(0, limits, eighth, first));
  EXPECT_FALSE(b->claim(0, limits, eighth, second));
  b->mark_starved(on(SmSet().set(0)), second.order);
  const uint32_t bell = b->bell();
  a->unclaim(0, eighth);
  EXPECT_NE(b->bell(), bell) << "b is notified";
  EXPECT_TRUE(a->starves_before(0, third));
  EXPECT_FALSE(a->starves_before(0, first));
  EXPECT_FALSE(a->starves_before(1, third));
  for (int i = 0; i < 8; ++i) EXPECT_TRUE(a->claim(1, limits, eighth, third)) << "nobody waits";
  EXPECT_FALSE(a->claim(0, limits, eighth, third)) << "there is room, but it is b's";
  EXPECT_TRUE(a->claim(0, limits, eighth, first)) << "unless a was there before";
  a->unclaim(0, eighth);
  EXPECT_TRUE(b->claim(0, limits, eighth, second));
  b->clear_starved();
  EXPECT_FALSE(a->starves_before(0, third));
}

TEST_F(SharedGpuTest, ClaimsOfTheDeadCountNoMore) {
  config_.mode = SLUICE_SOFT_MPS;
  auto a = open();
  const SmLimits limits;
  const SmClaim all{65536, 1024, 1024, 1};
  const pid_t child = start_child([&] {
    auto gpu = SharedGpu::open(config_);
    if (!(*gpu)->claim(0, limits, all)) ::_exit(1);
    (void)gpu->release();
  });
  EXPECT_FALSE(a->claim(0, limits, all));
  kill_child(child);
  a->eject_absent();
  EXPECT_TRUE(a->claim(0, limits, all));
}

TEST_F(SharedGpuTest, AHolderThatStandsStillLosesTheEngine) {
  config_.stall_ms = 20;
  auto a = open(), b = open();
  const unsigned sa = *a->join(), sb = *b->join();
  a->request(sa);
  ASSERT_TRUE(a->try_acquire(sa));
  a->show_running(sa);
  b->request(sb);
  // One that beats stays, however long it takes.
  for (int i = 0; i < 10; ++i) {
    a->beat();
    b->eject_absent();
    a->beat();
    ::usleep(5000);
    EXPECT_TRUE(a->holds(sa));
  }
  while (a->holds(sa)) {
    b->eject_absent();
    ::usleep(1000);
  }
  EXPECT_TRUE(b->try_acquire(sb));
  a->release(sa);
  EXPECT_TRUE(b->holds(sb)) << "what it does not have it cannot give back";
  EXPECT_EQ(SharedGpu::word(a->channel(sa).ejected).load(), 1u);
}

TEST(Config, ReadsTheEnvironmentAndNamesWhatIsWrong) {
  ::setenv("SLUICE_SOFT_SMS", "6", 1);
  ::setenv("SLUICE_SOFT_MEMORY", "3M", 1);
  auto config = config_from_environment();
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config->sms, 6u);
  EXPECT_EQ(config->memory_bytes, 3u << 20);
  EXPECT_GE(config->threads, 1u);
  for (const char* wrong : {"0", "x", "5x", "-1", "99999999999999999999", "9999G"}) {
    ::setenv("SLUICE_SOFT_SMS", wrong, 1);
    config = config_from_environment();
    ASSERT_FALSE(config.ok()) << wrong;
    EXPECT_NE(config.error().message.find("SLUICE_SOFT_SMS"), std::string::npos);
  }
  ::unsetenv("SLUICE_SOFT_SMS");
  ::unsetenv("SLUICE_SOFT_MEMORY");
}

TEST(Arena, CutsAlignedPiecesAndMendsThem) {
  Arena arena;
  ASSERT_TRUE(Arena::make(1 << 20, arena).ok());
  EXPECT_EQ(arena.allocate(0), 0u);
  std::vector<uint64_t> bases;
  for (int i = 0; i < 100; ++i) {
    bases.push_back(arena.allocate(1000));
    ASSERT_NE(bases.back(), 0u);
    EXPECT_EQ(bases.back() % Arena::kGranule, 0u);
    EXPECT_TRUE(arena.contains(bases.back()));
    std::memset(reinterpret_cast<void*>(bases.back()), i, 1000);
  }
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(*reinterpret_cast<char*>(bases[i] + 999), i) << "pieces do not overlap";
  }
  // Free in an order that merges with neighbours on both sides; then all of it is one piece again.
  for (int i = 0; i < 100; i += 2) arena.free(bases[i]);
  for (int i = 1; i < 100; i += 2) arena.free(bases[i]);
  const uint64_t whole = arena.allocate((4u << 20) - Arena::kGranule);
  EXPECT_NE(whole, 0u);
  EXPECT_EQ(arena.allocate(1), 0u);
  arena.free(whole);
}

TEST(Arena, FreedAddressesRest) {
  Arena arena;
  ASSERT_TRUE(Arena::make(1 << 20, arena).ok());
  const uint64_t first = arena.allocate(4096);
  arena.free(first);
  EXPECT_NE(arena.allocate(4096), first);
}

// Of whatever sizes: what is shared with one are its own pages, or one page of small ones.
TEST(Arena, LargePiecesHavePagesOfTheirOwn) {
  Arena arena;
  ASSERT_TRUE(Arena::make(16 << 20, arena).ok());
  std::set<uint64_t> pages;
  for (uint64_t bytes : {64, 4096, 3000, 3000, 5000, 1, 4095, 8192, 512, 100'000, 700}) {
    const uint64_t base = arena.allocate(bytes);
    const auto [first, length] = Arena::pages_of(base, bytes);
    if (bytes < 4096) {
      EXPECT_EQ(length, 4096u) << bytes;
      pages.insert(first);
      continue;
    }
    EXPECT_EQ(base, first);
    for (uint64_t page = first; page < first + length; page += 4096)
      EXPECT_TRUE(pages.insert(page).second) << bytes;
  }
}

// Others see what is written from then on, and nobody who writes meanwhile is lost.
TEST(Arena, MovesToAFileBelowWhoWritesThere) {
  constexpr uint64_t kBytes = 4 << 20, kWords = kBytes / 8, kRounds = 4;
  Arena arena;
  ASSERT_TRUE(Arena::make(64 << 20, arena).ok());
  for (uint64_t round = 0; round < kRounds; ++round) {
    const uint64_t base = arena.allocate(kBytes);
    auto* const words = reinterpret_cast<uint64_t*>(base);
    std::atomic<bool> stop{false};
    std::atomic<uint64_t> written{0};
    std::thread writer([&] {
      for (uint64_t i = 0; !stop; i = (i + 511) % kWords, ++written)
        std::atomic_ref(words[i]).fetch_add(1, std::memory_order_relaxed);
    });
    auto file = make_memfd("test", kBytes);
    ASSERT_TRUE(file.ok());
    auto* const theirs = static_cast<uint64_t*>(
        ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file->get(), 0));
    while (written < kWords) std::this_thread::yield();
    ASSERT_TRUE(arena.share(base, kBytes, std::move(*file)).ok());
    EXPECT_GE(arena.file_of(base), 0);
    stop = true;
    writer.join();
    EXPECT_EQ(std::accumulate(theirs, theirs + kWords, uint64_t{0}), written.load());
    theirs[5] = 55;
    EXPECT_EQ(words[5], 55u);
    arena.free(base);
    EXPECT_EQ(arena.file_of(base), -1);
    *words = UINT64_MAX;  // nobody's any more
    EXPECT_NE(*theirs, UINT64_MAX);
    ::munmap(theirs, kBytes);
  }
}

}  // namespace
}  // namespace sluice::softgpu

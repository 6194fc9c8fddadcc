// SPDX-License-Identifier: Apache-2.0
// A real sluice-worker whose launches under parts of the GPU are confined by green contexts: every
// task runs once, on an SM of its set, in every form; whatever fails, they run as without.
#include <bit>
#include <random>

#include "tests/unit/worker/kernels.h"

namespace sluice::test {
namespace {

constexpr uint32_t kGreenSms = 12;
const uint32_t kGreenGpuSms = kNvidia ? 132 : kGreenSms;
constexpr uint32_t kThreads = 64;

// At the end of a kernel: its block writes down on which SM it was (a bit of 32) and that it ran
// once more, behind the values.
constexpr char kWhere[] = R"(
  mov.u32 %r20, %tid.x;
  setp.ne.u32 %p9, %r20, 0;
  @%p9 bra HOME;
  ld.param.u64 %rd20, [p_out];
  ld.param.u32 %r21, [p_n];
  mul.wide.u32 %rd21, %r21, 4;
  add.u64 %rd20, %rd20, %rd21;
  mov.u32 %r22, %ctaid.x;
  mul.wide.u32 %rd21, %r22, 8;
  add.u64 %rd20, %rd20, %rd21;
  mov.u32 %r23, %smid;
  and.b32 %r23, %r23, 31;
  mov.u32 %r24, 1;
  shl.b32 %r24, %r24, %r23;
  red.global.or.b32 [%rd20], %r24;
  red.global.add.u32 [%rd20+4], 1;
HOME:
  ret;
}
)";
const std::string kAdd = std::string(kHead) + kBody + kWhere;
const std::string kOnce = std::string(kHead) + kHalvesMeet + kBody + kWhere;

class WorkerGreen : public WorkerProcess {
 protected:
  void start_green(const char* environment = nullptr, wp::Signal signal = wp::Signal::kHost) {
    WorkerBench::Options o;
    o.signal = kNvidia ? wp::Signal::kProxy : signal;
    o.spatial_sms = kGreenGpuSms;
    o.green = true;
    o.open = false;
    // Every form, wherever there is one.
    o.admission_us = o.window_us = 1'000'000'000;
    o.environment = {"SLUICE_SOFT_SMS=" + std::to_string(kGreenSms), "SLUICE_SOFT_THREADS=2"};
    if (environment) o.environment.push_back(environment);
    start(std::move(o));
    ASSERT_NE(b, nullptr);
    b->grant_part(sms_);
    make_context();
    n_ = kThreads * grid_;
    data_ = alloc(data_bytes()).as<uint64_t>();
    reset();
  }
  static constexpr uint32_t kMarks = 64;
  uint64_t data_bytes() const { return n_ * 4 + grid_ * 8 + kMarks; }
  void reset() {
    zero(data_, data_bytes() - kMarks);
    expected_ = runs_ = 0;
    allowed_ = sms_;
  }
  // `flags`: of add. `opaque`: as it is. Marks the forms that run behind all else.
  void load_add(const std::string& ptx, uint32_t flags, bool opaque = false) {
    auto rewritten = passes::rewrite_module(ptx);
    ASSERT_TRUE(rewritten.ok());
    std::string text = opaque ? ptx : rewritten->text;
    const char* forms[] = {"add" SLUICE_CLONE_SUFFIX "(", "add" SLUICE_ONE_TASK_SUFFIX "(",
                           "add" SLUICE_WINDOW_SUFFIX "("};
    for (uint32_t i = 0; i < 3; ++i) {
      const size_t entry = text.find(forms[i]);
      if (entry == text.npos) continue;
      const size_t at = text.find('{', entry);
      text.insert(
          at + 1,
          "\n\t.reg .b64 %marked;\n\tld.param.u64 %marked, [p_out];\n\tst.global.u8 [%marked+" +
              std::to_string(n_ * 4 + grid_ * 8 + i) + "], 1;");
    }
    const Answer a = load(text);
    ASSERT_EQ(a.status, CUDA_SUCCESS)
        << std::string(reinterpret_cast<const char*>(a.body.data()), a.body.size());
    module = a.as<uint64_t>();
    add = function("add", opaque ? 0 : SLUICE_FUNCTION_EVICTABLE | flags);
    zero(data_ + data_bytes() - kMarks, kMarks);
  }
  void launch_one(uint32_t rounds = 1, uint64_t stream = 0) {
    const uint32_t k = ++launches_;
    b->post(SLUICE_CALL_LAUNCH, launch_body(add, grid_, kThreads, data_, n_, k, stream, rounds),
            context, SLUICE_RECORD_NO_REPLY);
    expected_ = advance(expected_, k, rounds);
    ++runs_;
  }
  uint64_t green() const {
    return __atomic_load_n(&b->report->header.green_launches, __ATOMIC_RELAXED);
  }
  uint64_t made() const {
    return __atomic_load_n(&b->report->header.green_contexts, __ATOMIC_RELAXED);
  }
  // Launches until one was confined by the hardware. What came before ran as without.
  void wait_green(uint64_t stream = 0) {
    for (int i = 0; i < 2000; ++i) {
      const uint64_t before = green();
      launch_one(1, stream);
      ASSERT_EQ(sync().status, CUDA_SUCCESS);
      if (green() > before) return;
      ::usleep(1000);
    }
    FAIL() << "no green context";
  }
  void move_to(const SmSet& sms, bool recall = true) {
    sms_ = sms;
    allowed_ = allowed_ | sms;
    b->grant_part(sms, recall);
  }
  // All is done: every task once for each launch, on SMs that were its vGPU's.
  void check() {
    ASSERT_EQ(sync(120000).status, CUDA_SUCCESS);
    const uint32_t* got = words(data_, data_bytes());
    for (uint32_t i = 0; i < n_; ++i) ASSERT_EQ(got[i], expected_) << i;
    uint32_t seen = 0;
    for (uint32_t block = 0; block < grid_; ++block) {
      ASSERT_EQ(got[n_ + 2 * block + 1], runs_) << "task " << block;
      seen |= got[n_ + 2 * block];
    }
    if (names_only_) {
      EXPECT_LE(static_cast<uint32_t>(std::popcount(seen)), allowed_.count()) << std::hex << seen;
    } else {
      EXPECT_EQ(seen & ~allowed_.word(0), 0u) << std::hex << seen;
    }
    const auto* marks = reinterpret_cast<const uint8_t*>(got + n_ + 2 * grid_);
    forms_ = marks[0] | marks[1] << 1 | marks[2] << 2;
    EXPECT_EQ(b->report->header.in_flight, 0u);
    EXPECT_EQ(b->report->header.unconfined, 0u);
    EXPECT_TRUE(b->async_errors.empty());
  }
  // A union of pairs, not all.
  SmSet random_pairs() {
    for (;;) {
      SmSet s;
      for (uint32_t sm = 0; sm < kGreenGpuSms; sm += 2)
        if (random_() % 2) s = s | SmSet(sm, sm + 2);
      if (!s.empty() && s.count() < kGreenGpuSms) return s;
    }
  }
  std::mt19937 random_{11};
  uint32_t grid_ = kNvidia ? 20'000 : 400, n_ = 0, expected_ = 0, runs_ = 0, launches_ = 0;
  unsigned forms_ = 0;  // that ran: bit 0 the loop, 1 one task a block, 2 windows
  uint64_t data_ = 0;
  SmSet sms_ = SmSet(0, 2), allowed_;
  bool names_only_ = kNvidia;  // %smid numbers SMs otherwise than their groups
};

// By how SMs are numbered; on an H200 groups are permuted, and under MPS each green context numbers
// its own from 0.
class WorkerGreenNumbers : public WorkerGreen, public testing::WithParamInterface<const char*> {};

TEST_P(WorkerGreenNumbers, EveryFormRunsOnItsSms) {
  names_only_ |= std::string(GetParam()) != "SLUICE_SOFT_GREEN=on";
  start_green(GetParam());
  struct Case {
    const char* what;
    std::string ptx;
    uint32_t flags;
    bool opaque;
    unsigned forms;
  };
  for (const Case& c : {Case{"loop, windows", kAdd, 0, false, 5},
                        Case{"one task a block", kAdd, SLUICE_FUNCTION_IN_ORDER, false, 2},
                        Case{"prologue", kOnce, SLUICE_FUNCTION_ONCE, false, 1},
                        Case{"opaque", kAdd, 0, true, 0}}) {
    SCOPED_TRACE(c.what);
    load_add(c.ptx, c.flags, c.opaque);
    for (const SmSet& sms : {SmSet(2, 4), SmSet(0, 2) | SmSet(4, 8)}) {
      move_to(sms);
      ASSERT_NO_FATAL_FAILURE(wait_green());
      reset();
      const uint64_t before = green();
      for (int i = 0; i < 6; ++i) {
        launch_one();
        EXPECT_EQ(b->report->header.unconfined, 0u);
        if (i < 4) {
          ASSERT_EQ(sync().status, CUDA_SUCCESS);
        }
      }
      ASSERT_NO_FATAL_FAILURE(check());
      EXPECT_EQ(green(), before + 6);
      EXPECT_EQ(forms_ & c.forms, c.forms) << forms_;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, WorkerGreenNumbers,
                         testing::Values("SLUICE_SOFT_GREEN=on", "SLUICE_SOFT_GREEN=scattered",
                                         "SLUICE_SOFT_GREEN=permuted", "SLUICE_SOFT_SMID=virtual"),
                         [](const auto& of) {
                           return std::string(of.param).substr(std::string(of.param).find('=') + 1);
                         });

// Sets come and go faster than green contexts, launches are called back in their midst, and memory
// is right.
TEST_F(WorkerGreen, SetsChangeAndLaunchesLeaveAndEveryTaskRunsOnce) {
  for (wp::Signal signal : {wp::Signal::kHost, wp::Signal::kProxy}) {
    SCOPED_TRACE(wp::kSignalNames[static_cast<size_t>(signal)]);
    start_green(nullptr, signal);
    load_add(kAdd, 0);
    std::vector<SmSet> often;
    for (int i = 0; i < 3; ++i) often.push_back(random_pairs());
    const sluice_report_header& h = b->report->header;
    const auto enough = [&] {
      return green() > 20 && __atomic_load_n(&h.relaunches, __ATOMIC_RELAXED) > 20;
    };
    for (int round = 0; round < 15 || (round < 500 && !enough()); ++round) {
      for (int i = 0; i < 3; ++i) launch_one(kNvidia ? 20000 : 1 + random_() % 4);
      // While launches wait for a green context nothing is called back; so often enough until one
      // is on its way.
      for (int i = 0; round % 2 && i < 200'000; ++i) {
        if (__atomic_load_n(&h.in_flight, __ATOMIC_SEQ_CST) != 0 ||
            __atomic_load_n(&h.demand, __ATOMIC_SEQ_CST) == 0)
          break;
        ::usleep(100);
      }
      const SmSet to = random_() % 3   ? often[random_() % 3]
                       : random_() % 4 ? random_pairs()
                                       : SmSet(1, 4);
      if (random_() % 4 == 0) {
        b->take_back();
        ASSERT_TRUE(b->wait_left());
        move_to(to, false);
      } else {
        move_to(to);
        ASSERT_TRUE(b->wait_moved()) << "sluiced would wait for ever";
      }
      if (random_() % 2) ::usleep(random_() % 3000);
    }
    ASSERT_NO_FATAL_FAILURE(check());
    std::printf("%lu launches in %lu green contexts, %lu evictions, %lu relaunches\n", green(),
                made(), h.evictions, h.relaunches);
    EXPECT_TRUE(enough());
  }
}

// The first four of the GPU's twelve SMs, for a program that holds half of the GPU.
TEST_F(WorkerGreen, AGuestsOwnHasItsShareOfAPart) {
  start_green();
  load_add(kAdd, 0);
  sluice_green g{};
  g.flags = SLUICE_GREEN_SPLIT;
  g.groups = 1;
  g.min_count = 4;
  g.how = CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING;
  g.chosen[0] = 1;
  const Answer a = b->call(SLUICE_CALL_GREEN_CREATE, g, context);
  ASSERT_EQ(a.status, CUDA_SUCCESS);
  const uint64_t own = a.as<sluice_green_reply>().handle;
  const Answer made = generic(kOpcode_cuGreenCtxStreamCreate,
                              {raw<uint8_t>(1), raw(own), raw<unsigned>(1), raw<int>(0)}, context);
  ASSERT_EQ(made.status, CUDA_SUCCESS);
  const uint64_t stream = made.as<uint64_t>();
  for (const auto& [part, share] :
       {std::pair{SmSet(6, 12), SmSet(6, 8)}, std::pair{SmSet(0, 12), SmSet(0, 4)},
        std::pair{SmSet(2, 4), SmSet(2, 4)}}) {
    move_to(part);
    ASSERT_TRUE(b->wait_moved());
    ASSERT_NO_FATAL_FAILURE(wait_green(stream));
    reset();
    ASSERT_EQ(sync().status, CUDA_SUCCESS);
    allowed_ = share;
    const uint64_t before = green();
    for (int i = 0; i < 4; ++i) launch_one(1, stream);
    ASSERT_NO_FATAL_FAILURE(check());
    EXPECT_EQ(green(), before + 4);
  }
  EXPECT_EQ(generic(kOpcode_cuGreenCtxDestroy, {raw(own)}, context).status, CUDA_SUCCESS);
}

// More sets than are kept: the oldest goes, and the newest is there.
TEST_F(WorkerGreen, TheOldestMakesRoom) {
  start_green();
  load_add(kAdd, 0);
  std::vector<SmSet> sets;
  for (uint32_t bits = 1; sets.size() < 18; ++bits) {
    SmSet s;
    for (uint32_t group = 0; group < 6; ++group)
      if (bits >> group & 1) s = s | SmSet(2 * group, 2 * group + 2);
    sets.push_back(s);
  }
  for (size_t i = 0; i < sets.size(); ++i) {
    move_to(sets[i]);
    ASSERT_NO_FATAL_FAILURE(wait_green());
    EXPECT_EQ(made(), i + 1);
  }
  move_to(sets.back());
  wait_green();
  EXPECT_EQ(made(), sets.size()) << "it is still there";
  move_to(sets[0]);
  ASSERT_NO_FATAL_FAILURE(wait_green());
  EXPECT_EQ(made(), sets.size() + 1) << "it had gone";
  ASSERT_NO_FATAL_FAILURE(check());
}

// Copies and launches in other sets wait for what is before them in their stream, whose end may
// come first; contexts go with all that is theirs, and come again.
TEST_F(WorkerGreen, StreamsAndContextsComeAndGo) {
  start_green();
  load_add(kAdd, 0);
  ASSERT_NO_FATAL_FAILURE(wait_green());
  for (int round = 0; round < 6; ++round) {
    const Answer made = generic(
        kOpcode_cuStreamCreateWithPriority,
        {raw<uint8_t>(1), raw<unsigned>(CU_STREAM_NON_BLOCKING), raw<int>(round % 2 ? -1 : 0)},
        context);
    ASSERT_EQ(made.status, CUDA_SUCCESS);
    const uint64_t stream = made.as<uint64_t>();
    ASSERT_EQ(sync().status, CUDA_SUCCESS);
    const uint64_t before = green();
    for (int i = 0; i < 3; ++i) {
      launch_one(4, stream);
      // In the midst of it, through the guest's own stream.
      sluice_copy c = to_host(kStaging, data_, 4);
      c.stream = stream;
      ASSERT_EQ(b->call(SLUICE_CALL_COPY, c, context).status, CUDA_SUCCESS);
      EXPECT_EQ(*reinterpret_cast<const uint32_t*>(b->bulk(kStaging)), expected_);
    }
    EXPECT_GT(green(), before);
    launch_one(20, stream);
    ASSERT_EQ(generic(kOpcode_cuStreamDestroy_v2, {raw<uint64_t>(stream)}, context).status,
              CUDA_SUCCESS);
    ASSERT_NO_FATAL_FAILURE(check());
  }
  const uint64_t before = this->made();
  ASSERT_EQ(generic(kOpcode_cuDevicePrimaryCtxRelease_v2, {raw<int>(0)}, context).status,
            CUDA_SUCCESS);
  make_context();
  data_ = alloc(data_bytes()).as<uint64_t>();
  reset();
  load_add(kAdd, 0);
  ASSERT_NO_FATAL_FAILURE(wait_green());
  EXPECT_GT(this->made(), before);
  ASSERT_NO_FATAL_FAILURE(check());
}

// Whatever is amiss, launches run as without, by the blocks' own looking; it is said once in the
// log.
TEST_F(WorkerGreen, WithoutThemEverythingRunsAsBefore) {
  if (kNvidia) GTEST_SKIP() << "of the software GPU's settings";
  for (const char* amiss : {"SLUICE_SOFT_GREEN=fail", "SLUICE_SOFT_SM_GROUP=0"}) {
    SCOPED_TRACE(amiss);
    start_green(amiss);
    load_add(kAdd, 0);
    for (int round = 0; round < 6; ++round) {
      for (int i = 0; i < 3; ++i) launch_one(2);
      ASSERT_EQ(sync().status, CUDA_SUCCESS);
      move_to(round % 2 ? SmSet(0, 4) : SmSet(2, 6));
      ASSERT_TRUE(b->wait_moved());
    }
    ASSERT_NO_FATAL_FAILURE(check());
    EXPECT_EQ(green(), 0u);
    EXPECT_EQ(forms_, 1u);
  }
}

// A fault in a green context's stream ends the session's GPU work, as anywhere.
TEST_F(WorkerGreen, AFaultIsReported) {
  start_green();
  load_add(kAdd, 0);
  ASSERT_NO_FATAL_FAILURE(wait_green());
  b->post(SLUICE_CALL_LAUNCH, launch_body(add, grid_, kThreads, 64, n_, 1), context,
          SLUICE_RECORD_NO_REPLY);
  EXPECT_NE(sync().status, CUDA_SUCCESS);
  b->take_back();
  EXPECT_TRUE(b->wait_left()) << "nothing of it runs any more";
}

// An original whose blocks the GPU holds at once, but its part does not: they may wait for each
// other.
TEST_F(WorkerGreen, OriginalsThatAPartDoesNotHoldRunOnAnySm) {
  start_green();
  load_add(kAdd, 0, true);
  ASSERT_NO_FATAL_FAILURE(wait_green());
  const uint64_t before = green();
  // Of 1024 threads an SM holds one or two.
  b->post(SLUICE_CALL_LAUNCH, launch_body(add, kGreenGpuSms, 1024, data_, n_, 1), context,
          SLUICE_RECORD_NO_REPLY);
  ASSERT_EQ(sync().status, CUDA_SUCCESS);
  EXPECT_EQ(green(), before);
  b->post(SLUICE_CALL_LAUNCH, launch_body(add, 2, 1024, data_, n_, 1), context,
          SLUICE_RECORD_NO_REPLY);
  ASSERT_EQ(sync().status, CUDA_SUCCESS);
  EXPECT_EQ(green(), before + 1);
}

}  // namespace
}  // namespace sluice::test

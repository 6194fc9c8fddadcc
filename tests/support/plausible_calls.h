// SPDX-License-Identifier: Apache-2.0
// PlausibleCalls: a guest that makes any call of abi/cuda_calls.h with values that mean something:
// handles and addresses that it was given, those of other kinds, those that it has freed, sizes at
// their bounds. Records are well-formed, so what is tried is what stands behind the decoder: that
// the worker never dies by a signal, whatever comes after whatever.
//
// `Link` is how records go out (WorkerBench, or a channel):
//   std::optional<Answer> call(opcode, body, context)   waits a little; nullopt: no answer yet
//   void post(opcode, body, context)                    nobody waits
//   uint64_t staging(uint64_t* bytes)                    the bulk memory that the session has
// One thread. Every choice comes from the seed.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "abi/cuda_calls.h"
#include "guest-agent/shim/session/call_stub.h"
#include "kernels/passes/rewrite.h"

namespace sluice::test {

struct PlausibleAnswer {
  int32_t status = -1;
  std::vector<std::byte> body;
};

// `out[i] = out[i] * 3 + k`, `rounds` times; `look` reads and writes by any texture or surface
// object; `deep` keeps 16 KiB a thread of its own; `talk` prints.
inline constexpr char kPlausiblePtx[] = R"(.version 7.0
.target sm_70
.address_size 64
.extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);
.visible .global .align 4 .u32 counter = 7;
.visible .const .align 8 .b64 constants[4];
.global .align 1 .b8 text[4] = {104, 105, 10, 0};
.visible .entry add(.param .u64 p_out, .param .u32 p_n, .param .u32 p_k, .param .u32 p_rounds)
{
  .reg .pred %p<3>;
  .reg .b32 %r<10>;
  .reg .b64 %rd<5>;
  ld.param.u64 %rd1, [p_out];
  ld.param.u32 %r1, [p_n];
  ld.param.u32 %r8, [p_k];
  ld.param.u32 %r9, [p_rounds];
  and.b32 %r9, %r9, 15;
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, %ntid.x;
  mov.u32 %r4, %tid.x;
  mad.lo.u32 %r5, %r2, %r3, %r4;
  setp.ge.u32 %p1, %r5, %r1;
  @%p1 bra DONE;
  mul.wide.u32 %rd3, %r5, 4;
  add.u64 %rd4, %rd1, %rd3;
  ld.global.u32 %r6, [%rd4];
AGAIN:
  mul.lo.u32 %r6, %r6, 3;
  add.u32 %r6, %r6, %r8;
  sub.u32 %r9, %r9, 1;
  setp.gt.s32 %p2, %r9, 0;
  @%p2 bra AGAIN;
  st.global.u32 [%rd4], %r6;
DONE:
  ret;
}
.visible .entry look(.param .u64 p_out, .param .u64 p_object)
{
  .reg .b32 %r<10>;
  .reg .b64 %rd<5>;
  ld.param.u64 %rd1, [p_out];
  ld.param.u64 %rd2, [p_object];
  mov.u32 %r1, %tid.x;
  mul.lo.u32 %r2, %r1, 77777;
  tex.2d.v4.s32.s32 {%r3, %r4, %r5, %r6}, [%rd2, {%r1, %r2}];
  sust.b.1d.b32.trap [%rd2, {%r1}], %r3;
  st.global.u32 [%rd1], %r3;
  ret;
}
.visible .entry deep(.param .u64 p_out)
{
  .local .align 8 .b8 own[16384];
  .reg .b32 %r<4>;
  .reg .b64 %rd<4>;
  mov.u64 %rd1, own;
  mov.u32 %r1, %tid.x;
  st.local.u32 [%rd1], %r1;
  ret;
}
.visible .entry talk(.param .u64 p_out)
{
  .reg .b32 %r<4>;
  .reg .b64 %rd<4>;
  mov.u64 %rd1, text;
  cvta.global.u64 %rd2, %rd1;
  mov.u64 %rd3, 0;
  {
  .param .b64 f;
  .param .b64 a;
  .param .b32 r;
  st.param.b64 [f], %rd2;
  st.param.b64 [a], %rd3;
  call.uni (r), vprintf, (f, a);
  ld.param.b32 %r1, [r];
  }
  ret;
}
)";

// Copies a tile by the tensor map of its parameters and one by a map in memory, `point` says from
// where, and then the other way round. What it waits for it never waits for long.
inline constexpr char kPlausibleTilesPtx[] = R"(.version 8.0
.target sm_90
.address_size 64
.visible .entry tiles(.param .align 64 .b8 p_map[128], .param .u64 p_memory, .param .u64 p_point)
{
  .reg .pred %p<3>;
  .reg .b32 %r<8>;
  .reg .b64 %rd<4>;
  .shared .align 128 .b8 tile[4096];
  .shared .align 8 .b64 full;
  mov.u32 %r1, %tid.x;
  setp.ne.u32 %p1, %r1, 0;
  @%p1 bra DONE;
  mov.u32 %r2, tile;
  mov.u32 %r3, full;
  ld.param.u32 %r4, [p_point];
  mov.b64 %rd1, p_map;
  cvta.param.u64 %rd1, %rd1;
  ld.param.u64 %rd2, [p_memory];
  mbarrier.init.shared::cta.b64 [%r3], 1;
  fence.mbarrier_init.release.cluster;
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r3], 1024;
  cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r2], [%rd1,
  {%r4, %r4}], [%r3];
  mov.u32 %r5, 0;
WAIT:
  mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r3], 0;
  @%p2 bra GO;
  add.u32 %r5, %r5, 1;
  setp.lt.u32 %p2, %r5, 64;
  @%p2 bra WAIT;
GO:
  cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%rd1, {%r4, %r4}], [%r2];
  cp.async.bulk.commit_group;
  cp.async.bulk.wait_group 0;
  setp.eq.u64 %p2, %rd2, 0;
  @%p2 bra DONE;
  cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r2], [%rd2,
  {%r4, %r4}], [%r3];
DONE:
  ret;
}
)";

template <class Link>
class PlausibleCalls {
 public:
  PlausibleCalls(Link& link, uint64_t seed) : link_(link), random_(seed) {
    for (auto& w : bytes_) w = word();
    texts_ = {kPlausiblePtx, "", "not PTX"};
    if (auto rewritten = passes::rewrite_module(std::string(kPlausiblePtx))) {
      texts_.push_back(rewritten->text);
      // Clones that are not what they say: other parameters, much local memory, an array.
      std::string lying = rewritten->text;
      for (const char* clone : {"add" SLUICE_CLONE_SUFFIX "(", "add" SLUICE_ONE_TASK_SUFFIX "("})
        if (const size_t at = lying.find('{', lying.find(clone)); at != lying.npos)
          lying.insert(at + 1, "\n.local .align 8 .b8 much[65536];\n");
      lying.insert(lying.find('\n', lying.find(".address_size")),
                   "\n.visible .const .align 8 .b64 " SLUICE_ADDRESS_ARRAY "[4];\n");
      texts_.push_back(std::move(lying));
      std::string other = rewritten->text;
      const std::string block = "[" + std::to_string(SLUICE_PREEMPT_PARAMS_BYTES) + "]";
      for (size_t at; (at = other.find(block)) != other.npos;)
        other.replace(at, block.size(), "[2048]");
      texts_.push_back(std::move(other));
    }
    if (auto rewritten = passes::rewrite_module(std::string(kPlausibleTilesPtx)))
      tiles_text_ = rewritten->text;
  }

  // A context, some memory, modules, functions, a stream and an event; then `calls` of any kind.
  void run(int calls) {
    of<calls::kOpcode_cuDevicePrimaryCtxRetain>(true);
    for (int i = 0; i < 3; ++i) of<calls::kOpcode_cuMemAlloc_v2>(true);
    for (int i = 0; i < 2; ++i) of<calls::kOpcode_cuStreamCreate>(true);
    of<calls::kOpcode_cuEventCreate>(true);
    for (int i = 0; i < 4; ++i) module_load(true);
    for (int i = 0; i < 4; ++i) function_get(true);
    for (int i = 0; i < calls && !link_.ended(); ++i) one();
  }

  void one() {
    if (chance(2)) return custom();
    if (chance(3)) return chain();
    const auto& rows = all_rows();
    (this->*rows[random_() % rows.size()])(false);
  }

  // --- what call_stub.h asks of a link ---
  template <class Write>
  CUresult call(uint16_t opcode, uint64_t context, size_t bytes, Write&& write,
                guest::Pending& pending) {
    std::vector<std::byte> body(bytes);
    write(body.data());
    auto answer = link_.call(opcode, body, context);
    if (!answer) return CUDA_ERROR_NOT_READY;
    pending.body = std::move(answer->body);
    return static_cast<CUresult>(answer->status);
  }
  template <class Write>
  CUresult post(uint16_t opcode, uint64_t context, size_t bytes, Write&& write) {
    std::vector<std::byte> body(bytes);
    write(body.data());
    link_.post(opcode, body, context);
    return CUDA_SUCCESS;
  }

  size_t succeeded() const { return succeeded_; }
  size_t made() const { return made_; }

 private:
  using Row = void (PlausibleCalls::*)(bool);

  bool chance(unsigned of_n) { return random_() % of_n == 0; }
  template <class T>
  T pick(std::initializer_list<T> from) {
    return from.begin()[random_() % from.size()];
  }

  // --- values ---
  uint64_t handle(int kind) {
    const auto& pool = handles_[static_cast<size_t>(kind)];
    if (!pool.empty() && !chance(12)) return pool[random_() % pool.size()];
    if (chance(4)) return word();
    const auto& other = handles_[random_() % handles_.size()];
    return other.empty() ? 0 : other[random_() % other.size()];
  }
  uint64_t address() {
    if (addresses_.empty() || chance(16)) return word();
    uint64_t at = addresses_[random_() % addresses_.size()];
    return chance(4) ? at + pick<uint64_t>({4, 8, 256, 4096, 1u << 20, ~0ull}) : at;
  }
  uint64_t valid_address() { return addresses_[random_() % addresses_.size()]; }
  uint64_t number() {
    return pick<uint64_t>({0,     0,        1,        1,          2,          3,          4,
                           8,     16,       32,       64,         256,        512,        4096,
                           65536, 2u << 20, 1u << 30, 0x7fffffff, 0xffffffff, 1ull << 40, ~0ull});
  }
  uint64_t word() {
    switch (random_() % 8) {
      case 0:
        return random_() >> (random_() % 64);
      case 1:
        return addresses_.empty() ? 0 : addresses_[random_() % addresses_.size()];
      case 2:
        return values_.empty() ? 0 : values_[random_() % values_.size()];
      case 3: {
        const auto& pool = handles_[random_() % handles_.size()];
        return pool.empty() ? 1 : pool[random_() % pool.size()];
      }
      default:
        return number();
    }
  }
  uint64_t context() {
    return chance(24) ? handle(SLUICE_HANDLE_CONTEXT)
                      : (handles_[SLUICE_HANDLE_CONTEXT].empty()
                             ? 0
                             : handles_[SLUICE_HANDLE_CONTEXT].front());
  }
  uint64_t stream() { return chance(3) ? random_() % 3 : handle(SLUICE_HANDLE_STREAM); }

  // --- structures that calls read ---
  template <class T>
  void fill(T* to, bool good) {
    std::memset(static_cast<void*>(to), 0, sizeof *to);
    if (!good && chance(3)) {
      auto* raw = reinterpret_cast<std::byte*>(to);
      for (size_t at = 0; at + 4 <= sizeof *to; at += 4) {
        const auto v = static_cast<uint32_t>(word() >> (chance(8) ? 32 : 0));
        std::memcpy(raw + at, &v, 4);
      }
      return;
    }
    sensible(to);
  }
  template <class T>
  void sensible(T*) {}
  void sensible(CUDA_ARRAY3D_DESCRIPTOR* d) {
    *d = {};
    d->Width = pick<size_t>({1, 16, 100, 4096});
    d->Height = pick<size_t>({0, 1, 16, 64});
    d->Depth = pick<size_t>({0, 0, 1, 6, 16});
    d->Format = pick({CU_AD_FORMAT_UNSIGNED_INT8, CU_AD_FORMAT_FLOAT, CU_AD_FORMAT_HALF});
    d->NumChannels = pick({1u, 2u, 4u, 3u});
    d->Flags = pick({0u, 0u, 1u, 2u, 4u, 0xffu});
  }
  void sensible(CUmemAllocationProp* p) {
    p->type = static_cast<CUmemAllocationType>(1);
    p->location.type = static_cast<CUmemLocationType>(1);
  }
  void sensible(CUmemLocation* l) { l->type = static_cast<CUmemLocationType>(1); }
  void sensible(CUDA_TEXTURE_DESC* d) {
    for (auto& mode : d->addressMode) mode = static_cast<CUaddress_mode>(random_() % 5);
    d->filterMode = static_cast<CUfilter_mode>(random_() % 2);
    d->flags = static_cast<unsigned>(random_() % 64);
  }
  void sensible(CUDA_RESOURCE_DESC* d) {
    d->resType = static_cast<CUresourcetype>(random_() % 4);
    const uint64_t words[] = {chance(2) ? handle(SLUICE_HANDLE_ARRAY) : address(),
                              random_() % 2 ? 8u : 0x20u,
                              1 + random_() % 4,
                              pick<uint64_t>({16, 64, 4096, ~0ull}),
                              16,
                              512};
    std::memcpy(static_cast<void*>(&d->res), words, std::min(sizeof words, sizeof d->res));
  }

  // --- one argument ---
  template <class A, class Tag>
  struct Make;
  template <class A>
  struct Make<A, calls::In> {
    static A make(PlausibleCalls& p, int, bool good) {
      A a{};
      const uint64_t v = good ? 64 * (p.random_() % 2048 + 1) : p.chance(3) ? p.word() : p.number();
      const uint64_t small = p.random_() % 4;
      const uint64_t chosen = sizeof(A) <= 4 && (good || !p.chance(3)) ? (good ? 0 : small) : v;
      std::memcpy(static_cast<void*>(&a), &chosen, std::min(sizeof a, sizeof chosen));
      return a;
    }
  };
  template <class A>
  struct Make<A, calls::Dev> {
    static A make(PlausibleCalls& p, int, bool) { return static_cast<A>(p.address()); }
  };
  template <class A>
  struct Make<A, calls::Address> {
    static A make(PlausibleCalls& p, int, bool) { return reinterpret_cast<A>(p.address()); }
  };
  template <class A>
  struct Make<A, calls::InStructOrNull> {
    static A make(PlausibleCalls& p, int i, bool good) {
      return p.chance(2) ? nullptr : Make<A, calls::InStruct>::make(p, i, good);
    }
  };
  template <class A>
  struct Out {
    static A make(PlausibleCalls& p, int i, bool good) {
      if (!good && p.chance(16)) return nullptr;
      return reinterpret_cast<A>(p.outs_[static_cast<size_t>(i)].data());
    }
  };
  template <class A>
  struct Make<A, calls::Out> : Out<A> {};
  template <class A, int N>
  struct Make<A, calls::OutBuf<N>> : Out<A> {};
  template <class A, int N>
  struct Make<A, calls::OutArray<N>> : Out<A> {};
  template <class A, sluice_handle_kind Kind>
  struct Make<A, calls::HOut<Kind>> {
    static A make(PlausibleCalls& p, int i, bool) { return Out<A>::make(p, i, true); }
  };
  template <class A>
  struct Make<A, calls::InOut> {
    static A make(PlausibleCalls& p, int i, bool) { return Out<A>::make(p, i, true); }
  };
  template <class T>
  struct Make<const T*, calls::InStruct> {
    static const T* make(PlausibleCalls& p, int i, bool good) {
      T* to = reinterpret_cast<T*>(p.outs_[static_cast<size_t>(i)].data());
      p.fill(to, good);
      return to;
    }
  };
  template <class A>
  struct Make<A, calls::CStr> {
    static A make(PlausibleCalls& p, int, bool) {
      return p.pick<A>({"counter", "add", "deep", "constants", SLUICE_ADDRESS_ARRAY, "",
                        "0000:00:00.0", "text"});
    }
  };
  template <class A>
  struct Bytes {
    static A make(PlausibleCalls& p, int, bool) {
      return reinterpret_cast<A>(p.bytes_.data() + p.random_() % 64);
    }
  };
  template <class A, int N>
  struct Make<A, calls::InBuf<N>> : Bytes<A> {};
  template <class A, int N, int Less>
  struct Make<A, calls::InArray<N, Less>> : Bytes<A> {};
  template <class A>
  struct Handle {
    static A of(PlausibleCalls& p, int kind) { return reinterpret_cast<A>(p.handle(kind)); }
  };
  template <class A, sluice_handle_kind Kind>
  struct Make<A, calls::HIn<Kind>> {
    static A make(PlausibleCalls& p, int, bool) { return Handle<A>::of(p, Kind); }
  };
  template <class A, sluice_handle_kind Kind>
  struct Make<A, calls::HInOrNull<Kind>> {
    static A make(PlausibleCalls& p, int, bool) {
      return p.chance(4) ? nullptr : Handle<A>::of(p, Kind);
    }
  };
  template <class A, sluice_handle_kind Kind>
  struct Make<A, calls::HEnd<Kind>> {
    // Few objects are destroyed, or soon none would be left.
    static A make(PlausibleCalls& p, int, bool) {
      return p.handles_[Kind].size() < 3 && !p.chance(6) ? nullptr : Handle<A>::of(p, Kind);
    }
  };

  // --- what came back ---
  template <class A, class Tag>
  struct Keep {
    static void keep(PlausibleCalls&, A) {}
  };
  template <class T>
  struct Keep<T*, calls::Out> {
    static void keep(PlausibleCalls& p, T* a) {
      if constexpr (sizeof(T) == 8) {
        if (!a) return;
        uint64_t v;
        std::memcpy(&v, a, sizeof v);
        p.values_.push_back(v);
        if (std::is_same_v<T, CUdeviceptr> && v != 0) p.addresses_.push_back(v);
      }
    }
  };
  template <class T, sluice_handle_kind Kind>
  struct Keep<T*, calls::HOut<Kind>> {
    static void keep(PlausibleCalls& p, T* a) {
      p.handles_[Kind].push_back(reinterpret_cast<uint64_t>(*a));
    }
  };

  template <uint16_t Opcode, class Function, class Tags>
  struct Maker;
  template <uint16_t Opcode, class... A, class... Tags>
  struct Maker<Opcode, CUresult (*)(A...), calls::TagList<Tags...>> {
    static void make(PlausibleCalls& p, bool good) {
      make(p, good, std::index_sequence_for<A...>{});
    }
    template <size_t... I>
    static void make(PlausibleCalls& p, [[maybe_unused]] bool good, std::index_sequence<I...>) {
      const std::tuple<A...> all{Make<A, Tags>::make(p, static_cast<int>(I), good)...};
      std::apply(
          [&](A... a) {
            ++p.made_;
            if (guest::call_row<Opcode>(p, p.context(), a...) != CUDA_SUCCESS) return;
            ++p.succeeded_;
            (Keep<A, Tags>::keep(p, a), ...);
          },
          all);
    }
  };
  template <uint16_t Opcode>
  void of(bool good) {
    using OfTable = calls::Call<Opcode>;
    Maker<Opcode, typename OfTable::Function, typename OfTable::Tags>::make(*this, good);
  }
  static const std::vector<Row>& all_rows() {
    static const std::vector<Row> rows = {
#define SLUICE_TEST_ROW(opcode, function, status, ...) &PlausibleCalls::template of<opcode>,
        SLUICE_GENERIC_CALLS(SLUICE_TEST_ROW)
#undef SLUICE_TEST_ROW
    };
    return rows;
  }

  // --- chains of calls, of which the rows alone would seldom make the second ---
  template <uint16_t Opcode, class... A>
  bool row(A... a) {
    ++made_;
    if (guest::call_row<Opcode>(*this, context(), a...) != CUDA_SUCCESS) return false;
    ++succeeded_;
    return true;
  }
  template <class T>
  T any_of(const std::vector<T>& from) {
    return from.empty() ? T{} : from[random_() % from.size()];
  }
  struct Range {
    uint64_t at = 0, bytes = 0;
  };
  // One that it has; or a part of it, or more than it, as two that lie side by side are.
  Range range(const std::vector<Range>& of) {
    Range r = any_of(of);
    if (chance(6)) r.at += pick<uint64_t>({4096, kUnit, 0 - kUnit, 1});
    if (chance(4)) r.bytes = pick<uint64_t>({kUnit, 2 * kUnit, 4 * kUnit, r.bytes / 2, number()});
    return r;
  }
  void virtual_memory() {
    const uint64_t bytes = chance(12) ? number() : kUnit * (1 + random_() % 4);
    switch (random_() % 10) {
      case 0:
      case 1: {
        CUdeviceptr at = 0;
        if (row<calls::kOpcode_cuMemAddressReserve>(&at, static_cast<size_t>(bytes), size_t{0},
                                                    CUdeviceptr{address()}, 0ull))
          reserved_.push_back({at, bytes});
        return;
      }
      case 2: {
        CUmemAllocationProp prop{};
        fill(&prop, !chance(12));
        CUmemGenericAllocationHandle made = 0;
        const CUmemAllocationProp* p = &prop;
        if (row<calls::kOpcode_cuMemCreate>(&made, static_cast<size_t>(bytes), p, 0ull))
          physical_.push_back({made, bytes});
        return;
      }
      case 3:
      case 4:
      case 5: {
        const Range at = range(reserved_), what = any_of(physical_);
        const uint64_t size = chance(8) ? at.bytes : what.bytes;
        const uint64_t which = chance(12) ? word() : what.at;
        if (row<calls::kOpcode_cuMemMap>(CUdeviceptr{at.at}, static_cast<size_t>(size),
                                         static_cast<size_t>(chance(12) ? number() : 0),
                                         CUmemGenericAllocationHandle{which}, 0ull))
          mapped_.push_back({at.at, size});
        return;
      }
      case 6:
      case 7: {
        const Range at = range(mapped_);
        auto* desc = reinterpret_cast<CUmemAccessDesc*>(bytes_.data());
        std::memset(static_cast<void*>(desc), 0, sizeof *desc);
        desc->location.type = static_cast<CUmemLocationType>(chance(12) ? word() : 1);
        desc->flags = static_cast<CUmemAccess_flags>(chance(4) ? random_() % 4 : 3);
        const CUmemAccessDesc* d = desc;
        const auto count = static_cast<size_t>(chance(12) ? number() & 0xfff : 1);
        if (row<calls::kOpcode_cuMemSetAccess>(CUdeviceptr{at.at}, static_cast<size_t>(at.bytes), d,
                                               count))
          addresses_.push_back(at.at);
        return;
      }
      case 8: {
        // Also below what runs.
        if (chance(2)) launch();
        const Range at = range(mapped_);
        if (row<calls::kOpcode_cuMemUnmap>(CUdeviceptr{at.at}, static_cast<size_t>(at.bytes)))
          std::erase_if(mapped_,
                        [&](const Range& r) { return r.at >= at.at && r.at - at.at < at.bytes; });
        return;
      }
      default:
        if (chance(2)) {
          const uint64_t which = any_of(physical_).at;
          if (row<calls::kOpcode_cuMemRelease>(CUmemGenericAllocationHandle{which}) && !chance(6))
            std::erase_if(physical_, [&](const Range& r) { return r.at == which; });
        } else if (const Range at = range(reserved_); row<calls::kOpcode_cuMemAddressFree>(
                       CUdeviceptr{at.at}, static_cast<size_t>(at.bytes))) {
          std::erase_if(reserved_, [&](const Range& r) { return r.at == at.at; });
        }
    }
  }
  void shared_memory() {
    if (shared_.empty() || chance(3)) {
      CUipcMemHandle made{};
      if (row<calls::kOpcode_cuIpcGetMemHandle>(&made, CUdeviceptr{address()}))
        shared_.push_back(made);
      return;
    }
    if (chance(3)) {
      row<calls::kOpcode_cuIpcCloseMemHandle>(CUdeviceptr{address()});
      return;
    }
    CUipcMemHandle from = any_of(shared_);
    if (chance(4)) {
      auto* inside = reinterpret_cast<sluice_ipc_handle*>(&from);
      if (chance(2))
        inside->offset = word(), inside->bytes = word();
      else
        inside->token[random_() % 16] ^= static_cast<uint8_t>(1u << (random_() % 8));
    }
    CUdeviceptr at = 0;
    if (row<calls::kOpcode_cuIpcOpenMemHandle_v2>(&at, from, chance(8) ? 0u : 1u))
      addresses_.push_back(at);
  }
  void green() {
    sluice_green g{};
    g.base = chance(3) ? handle(SLUICE_HANDLE_GREEN) : 0;
    g.device = chance(16) ? static_cast<int32_t>(word()) : 0;
    g.flags = static_cast<uint32_t>(chance(12) ? word() : random_() % 4);
    g.groups = static_cast<uint32_t>(chance(8) ? number() : random_() % 4);
    g.min_count = static_cast<uint32_t>(chance(8) ? number() : 1 + random_() % 2);
    g.how = static_cast<uint32_t>(chance(12) ? word() : 0);
    for (auto& w : g.chosen) w = chance(8) ? word() : 0;
    if (!chance(4)) g.chosen[0] = 1 + random_() % 3;
    if (chance(2)) return ask(SLUICE_CALL_GREEN_SPLIT, g), void();
    const auto a = ask(SLUICE_CALL_GREEN_CREATE, g);
    if (a && a->status == CUDA_SUCCESS) handles_[SLUICE_HANDLE_GREEN].push_back(first_word(*a));
  }
  // The end of what is still waited for or runs.
  void end_in_use() {
    const auto streams = handles_[SLUICE_HANDLE_STREAM], events = handles_[SLUICE_HANDLE_EVENT];
    if (streams.empty() || events.empty()) return;
    const uint64_t stream = any_of(streams), event = any_of(events);
    launch();
    queue(SLUICE_CALL_EVENT_RECORD, sluice_stream_event{stream, event, 0});
    queue(SLUICE_CALL_STREAM_WAIT, sluice_stream_event{any_of(streams), event, 0});
    if (chance(2)) host_func();
    switch (random_() % 4) {
      case 0:
        row<calls::kOpcode_cuEventDestroy_v2>(reinterpret_cast<CUevent>(event));
        return;
      case 1:
        row<calls::kOpcode_cuStreamDestroy_v2>(reinterpret_cast<CUstream>(stream));
        return;
      case 2:
        row<calls::kOpcode_cuModuleUnload>(
            reinterpret_cast<CUmodule>(any_of(handles_[SLUICE_HANDLE_MODULE])));
        return;
      default:
        row<calls::kOpcode_cuMemFreeAsync>(CUdeviceptr{address()},
                                           reinterpret_cast<CUstream>(stream));
    }
  }
  // A map as the driver makes it, or one with words that are not; by it a kernel copies.
  void tiles() {
    if (tiles_.empty() && tiles_text_) {
      load(*tiles_text_);
      if (const auto& modules = handles_[SLUICE_HANDLE_MODULE]; !modules.empty())
        function_get(true, modules.back(), "tiles");
    }
    CUtensorMap map{};
    auto* words = reinterpret_cast<uint64_t*>(&map);
    const auto rank = static_cast<cuuint32_t>(chance(8) ? number() & 7 : 2);
    std::array<cuuint64_t, 8> sizes{}, strides{};
    std::array<cuuint32_t, 8> box{}, steps{};
    for (size_t k = 0; k < sizes.size(); ++k) {
      sizes[k] = chance(8) ? number() : 64;
      strides[k] = chance(8) ? word() : 256;
      box[k] = chance(8) ? static_cast<cuuint32_t>(number()) : 16;
      steps[k] = chance(8) ? static_cast<cuuint32_t>(number()) : 1;
    }
    CUtensorMap* out = &map;
    const cuuint64_t *size = sizes.data(), *stride = strides.data();
    const cuuint32_t *side = box.data(), *step = steps.data();
    const bool made = row<calls::kOpcode_cuTensorMapEncodeTiled>(
        out, static_cast<CUtensorMapDataType>(chance(8) ? random_() % 16 : pick({2u, 6u, 7u})),
        rank, reinterpret_cast<void*>(address()), size, stride, side, step,
        static_cast<CUtensorMapInterleave>(chance(8) ? random_() % 4 : 0),
        static_cast<CUtensorMapSwizzle>(chance(4) ? random_() % 5 : 0),
        static_cast<CUtensorMapL2promotion>(chance(8) ? random_() % 5 : 0),
        static_cast<CUtensorMapFloatOOBfill>(chance(8) ? random_() % 3 : 0));
    // A wrong one is a fault, after which the session has nothing left to try.
    if (!made && !chance(8)) return;
    if (chance(8)) words[random_() % 16] = word();
    if (chance(8)) words[random_() % 16] ^= 1ull << (random_() % 64);
    if (chance(64))
      for (size_t k = 0; k < 16; ++k) words[k] = random_();
    sluice_launch l{};
    l.function = tiles_.empty() ? handle(SLUICE_HANDLE_FUNCTION) : any_of(tiles_);
    l.stream = stream();
    for (int i = 0; i < 3; ++i) l.grid[i] = l.block[i] = 1;
    l.block[0] = 32;
    for (const auto& [function, bytes] : param_bytes_)
      if (function == l.function) l.param_bytes = bytes;
    std::string params(l.param_bytes, '\0');
    // The map stands before two words, wherever the driver has it.
    if (params.size() >= sizeof map + 16) {
      const size_t at = params.size() - 16 - sizeof map;
      const uint64_t memory = chance(16) ? address() : 0;
      const auto point = static_cast<uint32_t>(chance(3) ? number() : 0);
      std::memcpy(params.data() + at, &map, sizeof map);
      std::memcpy(params.data() + at + sizeof map, &memory, sizeof memory);
      std::memcpy(params.data() + at + sizeof map + 8, &point, sizeof point);
    }
    queue(SLUICE_CALL_LAUNCH, l, params);
  }
  void chain() {
    switch (random_() % 9) {
      case 0:
        return shared_memory();
      case 1:
        return green();
      case 2:
        return end_in_use();
      case 3:
        return tiles();
      default:
        return virtual_memory();
    }
  }

  // --- custom calls ---
  template <class T>
  std::vector<std::byte> with_tail(const T& head, std::string_view tail) {
    std::vector<std::byte> body(sizeof head + tail.size());
    std::memcpy(body.data(), &head, sizeof head);
    if (!tail.empty()) std::memcpy(body.data() + sizeof head, tail.data(), tail.size());
    return body;
  }
  template <class T>
  std::optional<PlausibleAnswer> ask(uint16_t opcode, const T& head, std::string_view tail = {}) {
    ++made_;
    auto a = link_.call(opcode, with_tail(head, tail), context());
    if (a && a->status == CUDA_SUCCESS) ++succeeded_;
    return a;
  }
  template <class T>
  void queue(uint16_t opcode, const T& head, std::string_view tail = {}) {
    ++made_;
    link_.post(opcode, with_tail(head, tail), context());
  }
  static uint64_t first_word(const PlausibleAnswer& a) {
    uint64_t v = 0;
    if (a.body.size() >= sizeof v) std::memcpy(&v, a.body.data(), sizeof v);
    return v;
  }

  void module_load(bool good) {
    load(texts_[good && texts_.size() > 4 ? (chance(2) ? 0 : 3) : random_() % texts_.size()]);
  }
  void load(const std::string& text) {
    sluice_module_load m{};
    m.log_bytes = chance(4) ? 4096 : 0;
    std::string_view tail = text;
    if (text.size() > SLUICE_RECORD_MAX_BYTES / 2) {
      uint64_t bytes = 0;
      const uint64_t at = link_.staging(&bytes);
      if (text.size() > bytes) return;
      std::memcpy(link_.bulk(at), text.data(), text.size());
      m.bulk = {at, text.size()};
      tail = {};
    }
    m.inline_bytes = static_cast<uint32_t>(tail.size());
    const auto a = ask(SLUICE_CALL_MODULE_LOAD, m, tail);
    if (a && a->status == CUDA_SUCCESS) handles_[SLUICE_HANDLE_MODULE].push_back(first_word(*a));
  }
  uint32_t function_flags() { return static_cast<uint32_t>(chance(4) ? random_() % 64 : 1); }
  void function_get(bool good) {
    function_get(good, handle(SLUICE_HANDLE_MODULE),
                 good ? "add"
                      : pick<std::string_view>(
                            {"add", "deep", "look", "talk", "add" SLUICE_CLONE_SUFFIX, "x"}));
  }
  void function_get(bool good, uint64_t module, std::string_view name) {
    sluice_function_get g{};
    g.module = module;
    g.flags = good ? random_() % 2 : function_flags();
    g.name_bytes = static_cast<uint32_t>(name.size());
    g.state_bytes = static_cast<uint32_t>(chance(4) ? number() : 0);
    const auto a = ask(SLUICE_CALL_FUNCTION_GET, g, name);
    if (!a || a->status != CUDA_SUCCESS || a->body.size() < sizeof(sluice_function_reply)) return;
    sluice_function_reply r;
    std::memcpy(&r, a->body.data(), sizeof r);
    handles_[SLUICE_HANDLE_FUNCTION].push_back(r.handle);
    param_bytes_.push_back({r.handle, r.param_bytes});
    if (name == "tiles") tiles_.push_back(r.handle);
  }
  void function_clones() {
    sluice_function_clones c{};
    c.function = handle(SLUICE_HANDLE_FUNCTION);
    c.module = handle(SLUICE_HANDLE_MODULE);
    c.flags = function_flags();
    c.state_bytes = static_cast<uint32_t>(chance(3) ? number() : 0);
    c.address_bytes = static_cast<uint32_t>(8 * pick<uint64_t>({0, 0, 0, 1, 4, 4, 2048}));
    ask(SLUICE_CALL_FUNCTION_CLONES, c,
        {reinterpret_cast<const char*>(bytes_.data()), c.address_bytes});
  }
  void clusters() {
    sluice_clusters c{};
    c.function = handle(SLUICE_HANDLE_FUNCTION);
    for (int i = 0; i < 3; ++i) {
      c.grid[i] = static_cast<uint32_t>(chance(12) ? number() : 1 + random_() % 16);
      c.block[i] = static_cast<uint32_t>(chance(12) ? number() : 1 + random_() % 8);
    }
    c.dynamic_shared_bytes = static_cast<uint32_t>(chance(8) ? number() : 0);
    c.what = static_cast<uint32_t>(chance(12) ? number() : random_() % 2);
    const uint64_t side = random_() % 4 + 1;
    c.flags = chance(8) ? word() : chance(2) ? SLUICE_LAUNCHED_CLUSTER(side, 1, 1) : 0;
    ask(SLUICE_CALL_CLUSTERS, c);
  }
  void launch() {
    sluice_launch l{};
    l.function = handle(SLUICE_HANDLE_FUNCTION);
    l.stream = stream();
    for (int i = 0; i < 3; ++i) {
      l.grid[i] = static_cast<uint32_t>(i == 0 ? pick<uint64_t>({1, 2, 16, 300}) : 1);
      l.block[i] = static_cast<uint32_t>(i == 0 ? pick<uint64_t>({1, 32, 64, 100}) : 1);
      if (chance(20)) (chance(2) ? l.grid : l.block)[i] = static_cast<uint32_t>(number() & 0xfff);
    }
    l.dynamic_shared_bytes = static_cast<uint32_t>(chance(8) ? number() : 0);
    if (chance(8))
      l.flags = chance(2)   ? SLUICE_LAUNCHED_COOPERATIVE
                : chance(2) ? SLUICE_LAUNCHED_CLUSTER(1 + random_() % 4, 1 + random_() % 2, 1)
                            : word();
    l.param_bytes = 20;
    for (const auto& [function, bytes] : param_bytes_)
      if (function == l.function) l.param_bytes = bytes;
    if (chance(24)) l.param_bytes = static_cast<uint32_t>(random_() % 64);
    std::string params(l.param_bytes, '\0');
    const uint64_t out = addresses_.empty() || chance(200) ? word() : valid_address();
    const uint32_t n = pick({0u, 1u, 16u, chance(300) ? 1u << 20 : 8u});
    if (params.size() >= 12) {
      std::memcpy(params.data(), &out, 8);
      std::memcpy(params.data() + 8, &n, 4);
      const uint64_t object = any_of(values_);
      if (params.size() == 16) std::memcpy(params.data() + 8, &object, 8);
    }
    queue(SLUICE_CALL_LAUNCH, l, params);
  }
  uint64_t of_staging(uint64_t wanted) {
    uint64_t bytes = 0;
    const uint64_t at = link_.staging(&bytes);
    if (chance(200)) return word();
    return at + (wanted < bytes ? random_() % (bytes - wanted) : 0);
  }
  void copy() {
    sluice_copy c{};
    c.width = pick<uint64_t>({1, 4, 64, 4096, chance(8) ? 1u << 20 : 16});
    c.height = chance(4) ? pick<uint64_t>({0, 2, 5}) : 1;
    c.dst_pitch = c.width * (1 + random_() % 2);
    c.src_pitch = chance(8) ? word() : c.width;
    c.dst_kind = static_cast<uint32_t>(random_() % 2);
    c.src_kind = chance(8) ? 0 : 1 - c.dst_kind;
    c.dst = c.dst_kind ? of_staging(c.width * c.height * 2) : address();
    c.src = c.src_kind ? of_staging(c.width * c.height * 2) : address();
    c.stream = stream();
    c.wait = chance(2);
    ask(SLUICE_CALL_COPY, c);
  }
  void copy_box() {
    sluice_copy_box c{};
    c.width = pick<uint64_t>({1, 16, 64, 400});
    c.height = pick<uint64_t>({0, 1, 4, 16});
    c.depth = pick<uint64_t>({0, 1, 2, 6});
    for (auto* end : {&c.dst, &c.src}) {
      end->kind = static_cast<uint32_t>(chance(2) ? 2 : random_() % 2);
      end->at = end->kind == SLUICE_COPY_ARRAY  ? handle(SLUICE_HANDLE_ARRAY)
                : end->kind == SLUICE_COPY_BULK ? of_staging(1 << 20)
                                                : address();
      if (end->kind == SLUICE_COPY_ARRAY || chance(16)) {
        end->x = pick<uint64_t>({0, 4, chance(8) ? ~0ull : 16});
        end->y = pick<uint64_t>({0, 1, chance(8) ? 1ull << 63 : 3});
        end->z = pick<uint64_t>({0, 0, 1});
      }
      if (end->kind != SLUICE_COPY_ARRAY || chance(16)) {
        end->pitch = chance(6) ? number() : c.width;
        end->rows = chance(6) ? number() : c.height;
      }
    }
    c.stream = stream();
    c.wait = chance(2);
    ask(SLUICE_CALL_COPY_BOX, c);
  }
  void memset_call() {
    sluice_memset m{};
    m.dst = address();
    m.width = pick<uint64_t>({0, 1, 16, 64, chance(16) ? number() : 4});
    m.height = chance(4) ? pick<uint64_t>({0, 2, chance(16) ? number() : 3}) : 1;
    m.pitch = chance(6) ? number() : 256;
    m.stream = stream();
    m.element_bytes = pick({1u, 2u, 4u, chance(200) ? 3u : 4u});
    m.value = static_cast<uint32_t>(word());
    m.wait = chance(3);
    ask(SLUICE_CALL_MEMSET, m);
  }
  sluice_synchronize what(int mostly) {
    sluice_synchronize s{};
    s.what = static_cast<uint32_t>(chance(500) ? random_() % 5 : mostly);
    s.handle = s.what == SLUICE_SYNC_EVENT ? handle(SLUICE_HANDLE_EVENT) : stream();
    return s;
  }
  sluice_stream_event stream_event() {
    return {stream(), handle(SLUICE_HANDLE_EVENT), chance(12) ? word() : 0};
  }
  void stream_value() {
    sluice_stream_value v{};
    v.stream = stream();
    v.address = address() & ~uint64_t{chance(24) ? 0u : 3u};
    v.is_wait = chance(3);
    v.value = static_cast<uint32_t>(v.is_wait && !chance(8) ? 0 : number());
    v.flags = static_cast<uint32_t>(chance(8) ? random_() % 8 : 0);
    if (chance(2)) return ask(SLUICE_CALL_STREAM_VALUE, v), void();
    sluice_stream_value64 wide{};
    wide.stream = v.stream;
    wide.address = v.address & ~uint64_t{chance(24) ? 0u : 7u};
    wide.value = v.value;
    wide.flags = v.flags;
    wide.is_wait = v.is_wait;
    ask(SLUICE_CALL_STREAM_VALUE64, wide);
  }
  void host_func() {
    if (const auto id = link_.last_host_func(); id && !chance(6))
      return queue(SLUICE_CALL_HOST_FUNC_DONE, chance(24) ? word() : *id);
    sluice_synchronize s = what(SLUICE_SYNC_STREAM);
    ask(SLUICE_CALL_HOST_FUNC, s);
  }
  void extents() {
    if (extents_.empty() || chance(2)) {
      const auto a = ask(SLUICE_CALL_EXTENT_ALLOC, sluice_extent{chance(12) ? number() : 2u << 20});
      sluice_bulk b{};
      if (!a || a->status != CUDA_SUCCESS || a->body.size() < sizeof b) return;
      std::memcpy(&b, a->body.data(), sizeof b);
      extents_.push_back(b);
      return;
    }
    const sluice_bulk b = extents_[random_() % extents_.size()];
    if (!chance(4)) std::erase_if(extents_, [&](const auto& e) { return e.offset == b.offset; });
    ask(SLUICE_CALL_EXTENT_FREE, b);
  }
  void custom() {
    switch (random_() % 20) {
      case 0:
        return module_load(false);
      case 1:
        return function_get(false);
      case 2:
      case 3:
        return function_clones();
      case 4:
        return copy();
      case 5:
        return copy_box();
      case 6:
        return memset_call();
      case 7:
        ask(SLUICE_CALL_SYNCHRONIZE, what(static_cast<int>(random_() % 3)));
        return;
      case 8:
        return queue(SLUICE_CALL_EVENT_RECORD, stream_event());
      case 9:
        return queue(SLUICE_CALL_STREAM_WAIT, stream_event());
      case 10:
        ask(SLUICE_CALL_QUERY, what(static_cast<int>(1 + random_() % 2)));
        return;
      case 11:
        return extents();
      case 12:
        return stream_value();
      case 13:
        return host_func();
      case 14:
        return clusters();
      default:
        return launch();
    }
  }

  Link& link_;
  std::mt19937_64 random_;
  std::vector<std::string> texts_;
  std::optional<std::string> tiles_text_;
  std::array<std::vector<uint64_t>, 16> handles_;
  std::vector<uint64_t> addresses_, values_;
  std::vector<std::pair<uint64_t, uint32_t>> param_bytes_;
  static constexpr uint64_t kUnit = 2u << 20;
  std::vector<Range> reserved_, physical_, mapped_;  // physical: its handle, and its size
  std::vector<CUipcMemHandle> shared_;
  std::vector<uint64_t> tiles_;  // functions
  std::vector<sluice_bulk> extents_;
  std::array<uint64_t, 8192 + 64> bytes_{};  // what arrays hold
  alignas(16) std::array<std::array<std::byte, SLUICE_RECORD_MAX_BYTES>, 16> outs_{};
  size_t made_ = 0, succeeded_ = 0;
};

}  // namespace sluice::test

// SPDX-License-Identifier: Apache-2.0
// The wire of the generic calls: each tag from the guest's stub through the worker's dispatch and
// back, and records that are cut short or changed, which must be errors and never more than that.
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <random>

#include "abi/cuda_calls.h"
#include "guest-agent/shim/session/call_stub.h"
#include "mediator/worker/calls/dispatch.h"

// Rows for the tags that no real call uses yet. Opcodes that the table does not have.
namespace sluice::calls {
struct Numbers {
  int32_t a;
  uint64_t b;
};
CUresult test_plain(int8_t, uint64_t, Numbers, int* out, Numbers* out2) {
  (void)out, (void)out2;
  return CUDA_SUCCESS;
}
CUresult test_buffers(const void*, size_t, char*, int, uint32_t*, unsigned) { return CUDA_SUCCESS; }
CUresult test_queued(uint32_t) { return CUDA_SUCCESS; }
CUresult test_structs(const Numbers*, void*, const Numbers*, uint32_t) { return CUDA_SUCCESS; }
template <>
struct Call<0xf04> {
  using Function = decltype(&test_structs);
  using Tags = TagList<InStruct, Address, InArray<3>, In>;
  static constexpr Status kStatus = Status::kReply;
  static constexpr const char* kName = "test_structs";
};
template <>
struct Call<0xf01> {
  using Function = decltype(&test_plain);
  using Tags = TagList<In, In, In, Out, Out>;
  static constexpr Status kStatus = Status::kReply;
  static constexpr const char* kName = "test_plain";
};
template <>
struct Call<0xf02> {
  using Function = decltype(&test_buffers);
  using Tags = TagList<InBuf<1>, In, OutBuf<3>, In, OutArray<5>, In>;
  static constexpr Status kStatus = Status::kReply;
  static constexpr const char* kName = "test_buffers";
};
template <>
struct Call<0xf03> {
  using Function = decltype(&test_queued);
  using Tags = TagList<In>;
  static constexpr Status kStatus = Status::kQueued;
  static constexpr const char* kName = "test_queued";
};
}  // namespace sluice::calls

namespace sluice {
namespace {

using calls::ReplyWriter;

struct Table {
  std::map<uint64_t, void*> live;
  uint64_t next = 1;
  bool full = false;
  std::optional<void*> driver_object(sluice_handle_kind kind, uint64_t handle) {
    const auto it = live.find(handle);
    if (it == live.end() || SLUICE_HANDLE_KIND(handle) != kind) return std::nullopt;
    return it->second;
  }
  bool has_room(sluice_handle_kind) { return !full; }
  uint64_t add(sluice_handle_kind kind, void* object) {
    const uint64_t handle = SLUICE_HANDLE(kind, 1, next++);
    live[handle] = object;
    return handle;
  }
  void remove(uint64_t handle) { live.erase(handle); }
};
static_assert(calls::HandleTable<Table>);

// A worker's session that does memory itself and leaves the rest to the driver.
struct HostSession {
  Table table;
  std::map<CUdeviceptr, size_t> allocations;
  Table& handles() { return table; }
  bool owns_device_address(CUdeviceptr p) { return allocations.count(p) != 0; }
  CUresult cuMemAlloc_v2(CUdeviceptr* p, size_t bytes) {
    if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *p = 0x1000 * (allocations.size() + 1);
    allocations[*p] = bytes;
    return CUDA_SUCCESS;
  }
  CUresult cuMemFree_v2(CUdeviceptr p) {
    allocations.erase(p);
    return CUDA_SUCCESS;
  }
};

// A driver whose functions do what most do: return, and write through number pointers.
template <class T>
void touch(T value) {
  if constexpr (std::is_pointer_v<T>) {
    using Pointee = std::remove_pointer_t<T>;
    if constexpr (std::is_arithmetic_v<Pointee> && !std::is_const_v<Pointee> &&
                  !std::is_same_v<Pointee, char>) {
      if (value != nullptr) *value = Pointee(42);
    }
  }
}
struct Driver {
#define SLUICE_FAKE(opcode, function, status, ...)             \
  decltype(&::function) function = [](auto... a) -> CUresult { \
    return (touch(a), ..., CUDA_SUCCESS);                      \
  };
  SLUICE_GENERIC_CALLS(SLUICE_FAKE)
#undef SLUICE_FAKE
};

// A guest's session whose channel is a function call. Keeps the last body for the tests of damage.
struct Loopback {
  HostSession host;
  Driver driver;
  std::vector<std::byte> body;
  bool malformed = false;
  bool answered = false;
  std::function<Result<CUresult>(uint16_t, std::span<const std::byte>, ReplyWriter&)> run =
      [this](uint16_t opcode, std::span<const std::byte> bytes, ReplyWriter& reply) {
        return calls::dispatch_call(host, driver, opcode, bytes, reply);
      };

  template <class Write>
  CUresult call(uint16_t opcode, uint64_t, size_t bytes, Write&& write, guest::Pending& pending) {
    body.assign(record_bytes(bytes) - sizeof(sluice_record), std::byte{0});
    write(body.data());
    std::vector<std::byte> room(calls::kMaxOutBytes + 256);
    ReplyWriter reply(room);
    const auto status = run(opcode, body, reply);
    answered = true;
    if (!status) {
      malformed = true;
      return CUDA_ERROR_UNKNOWN;
    }
    pending.body.assign(reply.written().begin(), reply.written().end());
    return *status;
  }
  template <class Write>
  CUresult post(uint16_t opcode, uint64_t context, size_t bytes, Write&& write) {
    guest::Pending pending;
    const CUresult r = call(opcode, context, bytes, write, pending);
    answered = false;
    return r;
  }
};

TEST(Wire, NumbersAndStructs) {
  Loopback loop;
  int8_t seen_a = 0;
  uint64_t seen_b = 0;
  calls::Numbers seen_c{};
  bool null_seen = false;
  loop.run = [&](uint16_t, std::span<const std::byte> bytes, ReplyWriter& reply) {
    return calls::internal::run_row<calls::Call<0xf01>>(
        loop.host, bytes, reply, [](auto...) { return calls::internal::NoSuchMethod{}; },
        [&](int8_t a, uint64_t b, calls::Numbers c, int* out, calls::Numbers* out2) -> CUresult {
          seen_a = a, seen_b = b, seen_c = c;
          if (out != nullptr) *out = 7;
          null_seen = out2 == nullptr;
          if (out2 != nullptr) *out2 = {-3, 1ull << 40};
          return CUDA_SUCCESS;
        });
  };
  int out = 0;
  calls::Numbers out2{};
  EXPECT_EQ(
      guest::call_row<0xf01>(loop, 0, int8_t{-5}, ~uint64_t{1}, calls::Numbers{9, 10}, &out, &out2),
      CUDA_SUCCESS);
  EXPECT_EQ(seen_a, -5);
  EXPECT_EQ(seen_b, ~uint64_t{1});
  EXPECT_EQ(seen_c.b, 10u);
  EXPECT_EQ(out, 7);
  EXPECT_EQ(out2.b, 1ull << 40);
  EXPECT_FALSE(null_seen);
  EXPECT_EQ(guest::call_row<0xf01>(loop, 0, int8_t{1}, uint64_t{2}, calls::Numbers{}, &out,
                                   static_cast<calls::Numbers*>(nullptr)),
            CUDA_SUCCESS);
  EXPECT_TRUE(null_seen);
}

TEST(Wire, StructsThatAreReadAndPointersThatAreNumbers) {
  Loopback loop;
  std::vector<uint64_t> seen;
  loop.run = [&](uint16_t, std::span<const std::byte> bytes, ReplyWriter& reply) {
    return calls::internal::run_row<calls::Call<0xf04>>(
        loop.host, bytes, reply, [](auto...) { return calls::internal::NoSuchMethod{}; },
        [&](const calls::Numbers* one, void* number, const calls::Numbers* more,
            uint32_t count) -> CUresult {
          seen = {one->b, reinterpret_cast<uint64_t>(number)};
          for (uint32_t i = 0; i < count; ++i) seen.push_back(more[i].b);
          return CUDA_SUCCESS;
        });
  };
  const calls::Numbers one{1, 20}, more[] = {{2, 30}, {3, 40}};
  void* const number = reinterpret_cast<void*>(uint64_t{0xdead0000beef});
  EXPECT_EQ(guest::call_row<0xf04>(loop, 0, &one, number, +more, 2u), CUDA_SUCCESS);
  EXPECT_EQ(seen, (std::vector<uint64_t>{20, 0xdead0000beef, 30, 40}));
  const calls::Numbers* const none = nullptr;
  EXPECT_EQ(guest::call_row<0xf04>(loop, 0, &one, static_cast<void*>(nullptr), none, 0u),
            CUDA_SUCCESS);
  EXPECT_EQ(seen, (std::vector<uint64_t>{20, 0}));
  seen.clear();
  EXPECT_EQ(guest::call_row<0xf04>(loop, 0, none, number, +more, 2u), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(guest::call_row<0xf04>(loop, 0, &one, number, none, 2u), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(guest::call_row<0xf04>(loop, 0, &one, number, +more, ~0u), CUDA_ERROR_INVALID_VALUE);
  EXPECT_TRUE(seen.empty()) << "refused before anything was sent";
  // More elements than came, to the host: malformed.
  EXPECT_EQ(guest::call_row<0xf04>(loop, 0, &one, number, +more, 2u), CUDA_SUCCESS);
  std::vector<std::byte> body = loop.body;
  const uint32_t lie = 1u << 20;
  std::memcpy(body.data() + sizeof one + 8, &lie, sizeof lie);
  std::vector<std::byte> room(calls::kMaxOutBytes + 256);
  ReplyWriter reply(room);
  EXPECT_FALSE(loop.run(0xf04, body, reply).ok());
}

TEST(Wire, Buffers) {
  Loopback loop;
  std::string seen;
  loop.run = [&](uint16_t, std::span<const std::byte> bytes, ReplyWriter& reply) {
    return calls::internal::run_row<calls::Call<0xf02>>(
        loop.host, bytes, reply, [](auto...) { return calls::internal::NoSuchMethod{}; },
        [&](const void* in, size_t n, char* out, int m, uint32_t* array, unsigned k) -> CUresult {
          seen.assign(static_cast<const char*>(in), n);
          for (int i = 0; i < m; ++i) out[i] = static_cast<char>('a' + i);
          for (unsigned i = 0; array != nullptr && i < k; ++i) array[i] = i * i;
          return CUDA_SUCCESS;
        });
  };
  const std::string in = "bytes that cross";
  char out[5] = {};
  uint32_t array[4] = {};
  EXPECT_EQ(guest::call_row<0xf02>(loop, 0, static_cast<const void*>(in.data()), in.size(), out, 4,
                                   array, 4u),
            CUDA_SUCCESS);
  EXPECT_EQ(seen, in);
  EXPECT_STREQ(out, "abcd");
  EXPECT_EQ(array[3], 9u);
  // Lengths that no record can have are refused before anything is sent.
  loop.answered = false;
  EXPECT_EQ(guest::call_row<0xf02>(loop, 0, static_cast<const void*>(in.data()), in.size(), out, -1,
                                   array, 4u),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(guest::call_row<0xf02>(loop, 0, static_cast<const void*>(nullptr), size_t{8}, out, 1,
                                   array, 4u),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(guest::call_row<0xf02>(loop, 0, static_cast<const void*>(in.data()), in.size(), out, 1,
                                   array, 0x40000000u),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_FALSE(loop.answered);
}

// Arrays of as many elements as a number says, or one or two fewer; a pointer that nobody looks
// behind; a value that comes back changed.
TEST(Wire, TensorMaps) {
  Loopback loop;
  loop.driver.cuTensorMapEncodeIm2col =
      [](CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* address,
         const cuuint64_t* dimensions, const cuuint64_t* strides, const int* lower,
         const int* upper, cuuint32_t channels, cuuint32_t pixels, const cuuint32_t* steps,
         CUtensorMapInterleave, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion,
         CUtensorMapFloatOOBfill fill) -> CUresult {
    cuuint64_t* to = map->opaque;
    *to++ = type;
    *to++ = reinterpret_cast<cuuint64_t>(address);
    *to++ = dimensions[0] * 1000 + dimensions[rank - 1];
    *to++ = rank > 1 ? strides[0] * 1000 + strides[rank - 2] : 0;
    *to++ = static_cast<cuuint64_t>(rank > 2 ? lower[rank - 3] * 1000 + upper[rank - 3] : 0);
    *to++ = channels * 1000 + pixels;
    *to++ = steps[0] * 1000 + steps[rank - 1];
    *to++ = swizzle * 10 + fill;
    return CUDA_SUCCESS;
  };
  loop.driver.cuTensorMapReplaceAddress = [](CUtensorMap* map, void* address) -> CUresult {
    map->opaque[1] += reinterpret_cast<cuuint64_t>(address);
    return CUDA_SUCCESS;
  };
  const cuuint64_t dimensions[4] = {11, 0, 0, 14}, strides[3] = {21, 0, 23};
  const int lower[2] = {-1, -2}, upper[2] = {3, 4};
  const cuuint32_t steps[4] = {31, 0, 0, 34};
  CUtensorMap map{};
  const auto encode = [&](cuuint32_t rank, const int* corners) {
    return SLUICE_CALL(cuTensorMapEncodeIm2col, loop, 0, &map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
                       rank, reinterpret_cast<void*>(0xdead0000), dimensions, strides, corners,
                       upper, 7u, 8u, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                       CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                       CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA);
  };
  ASSERT_EQ(encode(4, lower), CUDA_SUCCESS);
  const cuuint64_t expected[] = {7,    0xdead0000, 11014, 21023, static_cast<cuuint64_t>(-1996),
                                 7008, 31034,      31};
  for (size_t i = 0; i < std::size(expected); ++i) EXPECT_EQ(map.opaque[i], expected[i]) << i;
  EXPECT_EQ(encode(1, nullptr), CUDA_SUCCESS) << "no corners, no strides";
  loop.answered = false;
  EXPECT_EQ(encode(4, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_FALSE(loop.answered);
  map.opaque[1] = 5;
  EXPECT_EQ(SLUICE_CALL(cuTensorMapReplaceAddress, loop, 0, &map, reinterpret_cast<void*>(0x100)),
            CUDA_SUCCESS);
  EXPECT_EQ(map.opaque[1], 0x105u);
  EXPECT_EQ(map.opaque[7], 31u);
  EXPECT_EQ(
      SLUICE_CALL(cuTensorMapReplaceAddress, loop, 0, static_cast<CUtensorMap*>(nullptr), nullptr),
      CUDA_ERROR_INVALID_VALUE);
  EXPECT_FALSE(loop.malformed);
}

TEST(Wire, QueuedRowsDoNotWait) {
  Loopback loop;
  loop.run = [&](uint16_t, std::span<const std::byte> bytes, ReplyWriter& reply) {
    return calls::internal::run_row<calls::Call<0xf03>>(
        loop.host, bytes, reply, [](auto...) { return calls::internal::NoSuchMethod{}; },
        [](uint32_t v) { return v == 5 ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN; });
  };
  loop.answered = true;
  EXPECT_EQ(guest::call_row<0xf03>(loop, 0, 5u), CUDA_SUCCESS);
  EXPECT_FALSE(loop.answered);
}

TEST(Wire, HandlesAreMadeFoundAndEnded) {
  Loopback loop;
  CUevent event = nullptr;
  ASSERT_EQ(SLUICE_CALL(cuEventCreate, loop, 0, &event, 0u), CUDA_SUCCESS);
  const auto handle = reinterpret_cast<uint64_t>(event);
  EXPECT_EQ(SLUICE_HANDLE_KIND(handle), uint32_t{SLUICE_HANDLE_EVENT});
  float ms = 0;
  EXPECT_EQ(SLUICE_CALL(cuEventElapsedTime_v2, loop, 0, &ms, event, event), CUDA_SUCCESS);
  EXPECT_EQ(ms, 42.0f);
  // Of the wrong kind, of an old generation, unknown, null: errors for the program.
  CUstream stream = nullptr;
  ASSERT_EQ(SLUICE_CALL(cuStreamCreate, loop, 0, &stream, 0u), CUDA_SUCCESS);
  for (uint64_t bad : {reinterpret_cast<uint64_t>(stream), handle ^ (uint64_t{1} << 32), handle + 7,
                       uint64_t{0}, uint64_t{1}, uint64_t{2}, ~uint64_t{0}})
    EXPECT_EQ(
        SLUICE_CALL(cuEventElapsedTime_v2, loop, 0, &ms, reinterpret_cast<CUevent>(bad), event),
        CUDA_ERROR_INVALID_HANDLE)
        << std::hex << bad;
  EXPECT_EQ(SLUICE_CALL(cuEventDestroy_v2, loop, 0, event), CUDA_SUCCESS);
  EXPECT_EQ(loop.host.table.live.count(handle), 0u);
  EXPECT_EQ(SLUICE_CALL(cuEventDestroy_v2, loop, 0, event), CUDA_ERROR_INVALID_HANDLE);
  // The default streams need no entry; a full table makes no object.
  int priority = 0;
  EXPECT_EQ(SLUICE_CALL(cuStreamGetPriority, loop, 0, CU_STREAM_LEGACY, &priority), CUDA_SUCCESS);
  loop.host.table.full = true;
  EXPECT_EQ(SLUICE_CALL(cuEventCreate, loop, 0, &event, 0u), CUDA_ERROR_OUT_OF_MEMORY);
  CUcontext none = nullptr;
  EXPECT_EQ(SLUICE_CALL(cuCtxDestroy_v2, loop, 0, none), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_FALSE(loop.malformed);
}

TEST(Wire, AddressesMustBeTheSessions) {
  Loopback loop;
  CUdeviceptr p = 0;
  ASSERT_EQ(SLUICE_CALL(cuMemAlloc_v2, loop, 0, &p, size_t{4096}), CUDA_SUCCESS);
  EXPECT_EQ(loop.host.allocations[p], 4096u);
  EXPECT_EQ(SLUICE_CALL(cuMemFree_v2, loop, 0, p + 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(SLUICE_CALL(cuMemFree_v2, loop, 0, p), CUDA_SUCCESS);
  EXPECT_TRUE(loop.host.allocations.empty());
}

TEST(Wire, Strings) {
  Loopback loop;
  CUdevice device = 0;
  EXPECT_EQ(SLUICE_CALL(cuDeviceGetByPCIBusId, loop, 0, &device, "0000:01:00.0"), CUDA_SUCCESS);
  EXPECT_EQ(device, 42);
  EXPECT_EQ(SLUICE_CALL(cuDeviceGetByPCIBusId, loop, 0, &device, ""), CUDA_SUCCESS);
  EXPECT_EQ(SLUICE_CALL(cuDeviceGetByPCIBusId, loop, 0, &device, static_cast<const char*>(nullptr)),
            CUDA_ERROR_INVALID_VALUE);
  // A NUL inside the string: malformed.
  std::vector<std::byte> room(calls::kMaxOutBytes + 256);
  ReplyWriter reply(room);
  std::vector<std::byte> body(32, std::byte{0});
  body[0] = std::byte{1};  // out wanted
  const uint32_t length = 4;
  std::memcpy(&body[1], &length, sizeof length);
  std::memcpy(&body[5], "a\0bc", 4);
  EXPECT_FALSE(calls::dispatch_call(loop.host, loop.driver, calls::kOpcode_cuDeviceGetByPCIBusId,
                                    body, reply));
}

// Every row, with arguments of zeros and with damage.
const std::vector<uint16_t>& all_opcodes() {
  static const std::vector<uint16_t> opcodes = {
#define SLUICE_OPCODE(opcode, function, status, ...) opcode,
      SLUICE_GENERIC_CALLS(SLUICE_OPCODE)
#undef SLUICE_OPCODE
  };
  return opcodes;
}

Result<CUresult> dispatch(HostSession& host, uint16_t opcode, std::span<const std::byte> body) {
  Driver driver;
  std::vector<std::byte> room(calls::kMaxOutBytes + 256);
  ReplyWriter reply(room);
  return calls::dispatch_call(host, driver, opcode, body, reply);
}

TEST(WireDamage, MissingArguments) {
  HostSession host;
  for (uint16_t opcode : all_opcodes()) {
    if (opcode == calls::kOpcode_cuCtxResetPersistingL2Cache) continue;  // it has none
    EXPECT_FALSE(dispatch(host, opcode, {})) << calls::call_name(opcode);
  }
}

TEST(WireDamage, TooManyBytes) {
  HostSession host;
  const std::vector<std::byte> body(1024, std::byte{0});
  for (uint16_t opcode : all_opcodes())
    EXPECT_FALSE(dispatch(host, opcode, body)) << calls::call_name(opcode);
}

TEST(WireDamage, UnknownOpcodes) {
  HostSession host;
  const std::vector<std::byte> body(32, std::byte{0});
  for (uint16_t opcode : {uint16_t{0}, uint16_t{0xfff}, uint16_t{0x1000}, uint16_t{0xffff}})
    EXPECT_FALSE(dispatch(host, opcode, body)) << opcode;
}

TEST(WireDamage, CutShort) {
  Loopback loop;
  CUdevice device;
  ASSERT_EQ(SLUICE_CALL(cuDeviceGetByPCIBusId, loop, 0, &device, "0000:01:00.0"), CUDA_SUCCESS);
  const std::vector<std::byte> whole(loop.body.begin(), loop.body.begin() + 1 + 4 + 12);
  for (size_t n = 0; n < whole.size(); ++n)
    EXPECT_FALSE(
        dispatch(loop.host, calls::kOpcode_cuDeviceGetByPCIBusId, std::span(whole).first(n)))
        << n;
}

TEST(WireDamage, LengthsThatLie) {
  HostSession host;
  for (uint32_t length : {0x7fffffffu, 0xffffffffu, 0x80000000u, 28u, 1u << 20}) {
    std::vector<std::byte> body(32, std::byte{0});
    std::memcpy(&body[1], &length, sizeof length);
    EXPECT_FALSE(dispatch(host, calls::kOpcode_cuDeviceGetByPCIBusId, body)) << length;
    // cuDeviceGetName(char*, int len, dev): wanted, len, dev.
    std::vector<std::byte> name(32, std::byte{0});
    name[0] = std::byte{1};
    std::memcpy(&name[1], &length, sizeof length);
    EXPECT_EQ(dispatch(host, calls::kOpcode_cuDeviceGetName, name).ok(),
              length <= calls::kMaxOutBytes)
        << length;
  }
}

TEST(WireDamage, RandomBytesForEveryRow) {
  std::mt19937_64 random(4);
  HostSession host;
  uint64_t accepted = 0, refused = 0;
  for (int round = 0; round < 200; ++round) {
    for (uint16_t opcode : all_opcodes()) {
      std::vector<std::byte> body((random() % 4) * 32 + random() % 8);
      for (std::byte& b : body)  // flags and small lengths are likelier to get further
        b = static_cast<std::byte>(random() % 3 != 0 ? random() % 3 : random());
      (dispatch(host, opcode, body) ? accepted : refused)++;
    }
  }
  EXPECT_GT(accepted, 0u);
  EXPECT_GT(refused, 0u);
}

TEST(Calls, NamesAndOpcodesAreUnique) {
  std::map<uint16_t, int> seen;
  for (uint16_t opcode : all_opcodes()) {
    EXPECT_EQ(++seen[opcode], 1) << opcode;
    EXPECT_NE(calls::call_name(opcode), "unknown");
    EXPECT_FALSE(calls::is_custom(opcode));
  }
  EXPECT_EQ(calls::call_name(SLUICE_CALL_LAUNCH), "launch");
  EXPECT_EQ(calls::call_name(0xeee), "unknown");
}

}  // namespace
}  // namespace sluice

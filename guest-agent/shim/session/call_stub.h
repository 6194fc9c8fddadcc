// SPDX-License-Identifier: Apache-2.0
// The guest's end of the generic calls (abi/cuda_calls.h): from a call with CUDA's own signature to
// a record and back, derived from the table's tags. The wire format is described in
// abi/cuda_tags.h; the other end is mediator/worker/calls/dispatch.h. Any thread; owns nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <tuple>
#include <type_traits>

#include "abi/cuda_calls.h"
#include "guest-agent/shim/session/trace.h"
#include "guest-agent/shim/session/worker_link.h"

namespace sluice::guest {

// Writes front to back into the ring.
class ArgWriter {
 public:
  explicit ArgWriter(std::byte* to) : to_(to) {}
  void put(const void* data, size_t bytes) {
    if (bytes != 0) std::memcpy(to_, data, bytes);
    to_ += bytes;
  }
  template <class T>
  void put(const T& value) {
    put(&value, sizeof value);
  }

 private:
  std::byte* to_;
};

// Reads the private copy of a reply. What the worker left out stays untouched, and is an error.
class ReplyReader {
 public:
  explicit ReplyReader(const std::vector<std::byte>& body) : body_(body) {}
  void get(void* to, size_t bytes) {
    if (bytes > body_.size() - at_) {
      ok_ = false;
      return;
    }
    if (bytes != 0) std::memcpy(to, body_.data() + at_, bytes);
    at_ += bytes;
  }
  bool ok() const { return ok_; }

 private:
  const std::vector<std::byte>& body_;
  size_t at_ = 0;
  bool ok_ = true;
};

namespace internal {

using namespace calls;  // the tags

// One parameter on the guest: valid (else CUDA_ERROR_INVALID_VALUE at once), bytes on the wire in
// the first and the second pass, writing them, reading the result. `all` is every argument.
template <class A, class Tag>
struct ClientArg;

struct ClientArgBase {
  template <class All, class A>
  static bool valid(const All&, A) {
    return true;
  }
  template <class All, class A>
  static size_t bulk_bytes(const All&, A) {
    return 0;
  }
  template <class All, class A>
  static void put_bulk(ArgWriter&, const All&, A) {}
  template <class All, class A>
  static void get(ReplyReader&, const All&, A) {}
};

template <class A>
struct ClientArg<A, In> : ClientArgBase {
  static size_t bytes(A) { return sizeof(A); }
  static void put(ArgWriter& out, A a) { out.put(a); }
};

template <>
struct ClientArg<CUdeviceptr, Dev> : ClientArg<CUdeviceptr, In> {};

template <>
struct ClientArg<void*, Address> : ClientArgBase {
  static size_t bytes(void*) { return sizeof(uint64_t); }
  static void put(ArgWriter& out, void* a) { out.put(reinterpret_cast<uint64_t>(a)); }
};

struct ClientPointer : ClientArgBase {
  static size_t bytes(const void*) { return 1; }
  static void put(ArgWriter& out, const void* a) { out.put(static_cast<uint8_t>(a != nullptr)); }
};

template <class T>
struct ClientArg<T*, Out> : ClientPointer {
  template <class All>
  static void get(ReplyReader& in, const All&, T* a) {
    if (a != nullptr) in.get(a, sizeof(T));
  }
};

template <class T>
struct ClientArg<T*, InOut> : ClientArgBase {
  template <class All>
  static bool valid(const All&, T* a) {
    return a != nullptr;
  }
  static size_t bytes(T*) { return sizeof(T); }
  static void put(ArgWriter& out, T* a) { out.put(a, sizeof(T)); }
  template <class All>
  static void get(ReplyReader& in, const All&, T* a) {
    in.get(a, sizeof(T));
  }
};

template <>
struct ClientArg<const char*, CStr> : ClientArgBase {
  template <class All>
  static bool valid(const All&, const char* a) {
    return a != nullptr && std::strlen(a) <= kMaxOutBytes;
  }
  static size_t bytes(const char* a) { return sizeof(uint32_t) + std::strlen(a); }
  static void put(ArgWriter& out, const char* a) {
    const auto n = static_cast<uint32_t>(std::strlen(a));
    out.put(n);
    out.put(a, n);
  }
};

template <int N, class All>
bool bounded(const All& all, size_t element) {
  const auto n = std::get<N>(all);
  if constexpr (std::is_signed_v<decltype(n)>) {
    if (n < 0) return false;
  }
  return static_cast<uint64_t>(n) <= kMaxOutBytes / element;
}

template <class T>
struct ClientArg<const T*, InStruct> : ClientArgBase {
  template <class All>
  static bool valid(const All&, const T* a) {
    return a != nullptr;
  }
  static size_t bytes(const T*) { return sizeof(T); }
  static void put(ArgWriter& out, const T* a) { out.put(a, sizeof(T)); }
};

template <class T>
struct ClientArg<const T*, InStructOrNull> : ClientArgBase {
  static size_t bytes(const T*) { return 1 + sizeof(T); }
  static void put(ArgWriter& out, const T* a) {
    static const T kNone{};
    out.put(static_cast<uint8_t>(a != nullptr));
    out.put(a != nullptr ? a : &kNone, sizeof(T));
  }
};

template <class P, int N>
struct ClientArg<P, InBuf<N>> : ClientArgBase {
  template <class All>
  static bool valid(const All& all, P a) {
    return bounded<N>(all, 1) && (a != nullptr || std::get<N>(all) == 0);
  }
  static size_t bytes(P) { return 0; }
  static void put(ArgWriter&, P) {}
  template <class All>
  static size_t bulk_bytes(const All& all, P) {
    return static_cast<size_t>(std::get<N>(all));
  }
  template <class All>
  static void put_bulk(ArgWriter& out, const All& all, P a) {
    out.put(a, static_cast<size_t>(std::get<N>(all)));
  }
};

template <class T, int N, int Less>
struct ClientArg<const T*, InArray<N, Less>> : ClientArgBase {
  template <class All>
  static size_t bulk_bytes(const All& all, const T*) {
    const auto n = static_cast<size_t>(std::get<N>(all));
    return n < Less ? 0 : (n - Less) * sizeof(T);
  }
  template <class All>
  static bool valid(const All& all, const T* a) {
    return bounded<N>(all, sizeof(T)) && (a != nullptr || bulk_bytes(all, a) == 0);
  }
  static size_t bytes(const T*) { return 0; }
  static void put(ArgWriter&, const T*) {}
  template <class All>
  static void put_bulk(ArgWriter& out, const All& all, const T* a) {
    out.put(a, bulk_bytes(all, a));
  }
};

template <class T, int N, size_t Element>
struct ClientOutBytes : ClientPointer {
  template <class All>
  static bool valid(const All& all, T*) {
    return bounded<N>(all, Element);
  }
  template <class All>
  static void get(ReplyReader& in, const All& all, T* a) {
    if (a != nullptr) in.get(a, static_cast<size_t>(std::get<N>(all)) * Element);
  }
};
template <class T, int N>
struct ClientArg<T*, OutBuf<N>> : ClientOutBytes<T, N, 1> {};
template <class T, int N>
struct ClientArg<T*, OutArray<N>> : ClientOutBytes<T, N, sizeof(T)> {};

template <class A>
struct ClientHandle : ClientArgBase {
  static size_t bytes(A) { return sizeof(uint64_t); }
  static void put(ArgWriter& out, A a) { out.put(reinterpret_cast<uint64_t>(a)); }
};
template <class A, sluice_handle_kind Kind>
struct ClientArg<A, HIn<Kind>> : ClientHandle<A> {};
template <class A, sluice_handle_kind Kind>
struct ClientArg<A, HInOrNull<Kind>> : ClientHandle<A> {};
template <class A, sluice_handle_kind Kind>
struct ClientArg<A, HEnd<Kind>> : ClientHandle<A> {};

template <class A, sluice_handle_kind Kind>
struct ClientArg<A*, HOut<Kind>> : ClientPointer {
  template <class All>
  static bool valid(const All&, A* a) {
    return a != nullptr;
  }
  template <class All>
  static void get(ReplyReader& in, const All&, A* a) {
    uint64_t handle = 0;
    in.get(&handle, sizeof handle);
    *a = reinterpret_cast<A>(handle);
  }
};

template <uint16_t Opcode, class Function, class Tags>
struct Stub;

template <uint16_t Opcode, class... A, class... Tags>
struct Stub<Opcode, CUresult (*)(A...), TagList<Tags...>> {
  template <class AnyLink>
  static CUresult call(AnyLink& link, uint64_t context, A... a) {
    const std::tuple<A...> all(a...);
    if (!(true && ... && ClientArg<A, Tags>::valid(all, a))) return CUDA_ERROR_INVALID_VALUE;
    const size_t bytes =
        (size_t{0} + ... + (ClientArg<A, Tags>::bytes(a) + ClientArg<A, Tags>::bulk_bytes(all, a)));
    if (bytes > kMaxRecordBody) return CUDA_ERROR_INVALID_VALUE;
    auto write = [&](std::byte* to) {
      [[maybe_unused]] ArgWriter out(to);
      (ClientArg<A, Tags>::put(out, a), ...);
      (ClientArg<A, Tags>::put_bulk(out, all, a), ...);
    };
    Traced traced(Opcode);
    (traced.argument(a), ...);
    if constexpr (Call<Opcode>::kStatus == Status::kQueued) {
      return traced.end(link.post(Opcode, context, bytes, write), true);
    } else {
      Pending pending;
      const CUresult status = traced.end(link.call(Opcode, context, bytes, write, pending));
      if (status != CUDA_SUCCESS) return status;
      ReplyReader in(pending.body);
      (ClientArg<A, Tags>::get(in, all, a), ...);
      return in.ok() ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
    }
  }
};

}  // namespace internal

// The generic call of table row `Opcode`, in `context` (wire handle, 0: none). `session` is a
// WorkerLink, or a test's with the same call() and post().
template <uint16_t Opcode, class AnyLink, class... A>
CUresult call_row(AnyLink& link, uint64_t context, A... a) {
  using Row = calls::Call<Opcode>;
  return internal::Stub<Opcode, typename Row::Function, typename Row::Tags>::call(link, context,
                                                                                  a...);
}

}  // namespace sluice::guest

// SLUICE_CALL(cuMemAlloc_v2, session, context, args...): the row of that function.
#define SLUICE_CALL(function, ...) \
  ::sluice::guest::call_row<::sluice::calls::kOpcode_##function>(__VA_ARGS__)

// SPDX-License-Identifier: Apache-2.0
// The host's end of the generic calls (abi/cuda_calls.h): from the bytes of a record to a call of
// the driver, and its results back to bytes. Derived from the table's tags.
//
// Runs on the worker's decoding thread, on a private copy of the record. It trusts nothing in it:
// every read is bounded by the copy, every handle is looked up, every device address must be the
// session's. It does not know contexts (the session has made the record's context current before),
// streams' order or quotas: a call that needs such knowledge is a method of the session.
//
// Session is any type with
//   handles()                       -> a HandleTable&, see below
//   owns_device_address(CUdeviceptr) -> bool
// and, for any row it wants to do itself, a method with the function's name (say cuMemAlloc_v2)
// that returns CUresult and takes the row's parameters, handles as WireHandle<kind> (HOut: as
// WireHandle<kind>*, which the method sets). The method is responsible for its handles: nothing is
// looked up, made or ended for it. Every other row goes to api.<function> with driver objects.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "abi/cuda_calls.h"
#include "mediator/base/check.h"
#include "mediator/base/result.h"

namespace sluice::calls {

// A handle as the guest sent it; not checked.
template <sluice_handle_kind Kind>
struct WireHandle {
  uint64_t value = 0;
};

// What the dispatch needs of a table of handles. Driver objects are what the driver library calls
// CUstream, CUevent and so on. Streams 0, 1 and 2 never reach it.
template <class T>
concept HandleTable = requires(T table, sluice_handle_kind kind, uint64_t handle, void* object) {
  {
    table.driver_object(kind, handle)
    } -> std::same_as<std::optional<void*>>;  // live, of this kind
  { table.has_room(kind) } -> std::same_as<bool>;
  { table.add(kind, object) } -> std::same_as<uint64_t>;  // only after has_room
  table.remove(handle);
};

// Bytes of a reply behind sluice_completion. `room` is the caller's, at least kMaxOutBytes + 256.
class ReplyWriter {
 public:
  explicit ReplyWriter(std::span<std::byte> room) : room_(room) {}
  void put(const void* data, size_t bytes) {
    // Lengths were bounded when the request was read, so this is our own invariant.
    SLUICE_CHECK(bytes <= room_.size() - used_);
    if (bytes != 0) std::memcpy(room_.data() + used_, data, bytes);
    used_ += bytes;
  }
  std::span<const std::byte> written() const { return room_.first(used_); }

 private:
  std::span<std::byte> room_;
  size_t used_ = 0;
};

// Reads the private copy of a record's body. Every get says whether the bytes were there.
class ArgReader {
 public:
  explicit ArgReader(std::span<const std::byte> bytes) : bytes_(bytes) {}
  bool get(void* to, size_t bytes) {
    if (bytes > bytes_.size()) return false;
    if (bytes != 0) std::memcpy(to, bytes_.data(), bytes);
    bytes_ = bytes_.subspan(bytes);
    return true;
  }
  template <class T>
  bool get(T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    return get(&value, sizeof value);
  }
  size_t left() const { return bytes_.size(); }

 private:
  std::span<const std::byte> bytes_;
};

namespace internal {

template <sluice_handle_kind Kind>
constexpr CUresult invalid_handle() {
  return Kind == SLUICE_HANDLE_CONTEXT ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_INVALID_HANDLE;
}

inline bool get_flag(ArgReader& in, bool& flag) {
  uint8_t byte;
  if (!in.get(byte) || byte > 1) return false;
  flag = byte == 1;
  return true;
}

// One parameter on the host. A = its type, Tag = its tag.
// read, read_bulk: false means a malformed record. resolve: a status for the program.
template <class A, class Tag>
struct HostArg;

struct HostArgBase {
  template <class All>
  bool read_bulk(ArgReader&, All&) {
    return true;
  }
  template <class Session>
  CUresult resolve(Session&) {
    return CUDA_SUCCESS;
  }
  template <class Session>
  void finish(Session&) {}  // after success of a driver call
  void write(ReplyWriter&) {}
};

template <class A>
struct HostArg<A, In> : HostArgBase {
  static_assert(!std::is_pointer_v<A>, "a pointer is not plain data: give it another tag");
  // An enumerator is kept as its number: the guest may send one that no enumerator has.
  using Stored = typename std::conditional_t<std::is_enum_v<A>, std::underlying_type<A>,
                                             std::type_identity<A>>::type;
  Stored value{};
  bool read(ArgReader& in) { return in.get(value); }
  A driver_arg() { return static_cast<A>(value); }
  A session_arg() { return static_cast<A>(value); }
};

template <class T>
struct HostArg<T*, Out> : HostArgBase {
  bool wanted = false;
  T value{};
  bool read(ArgReader& in) { return get_flag(in, wanted); }
  T* driver_arg() { return wanted ? &value : nullptr; }
  T* session_arg() { return driver_arg(); }
  void write(ReplyWriter& out) {
    if (wanted) out.put(&value, sizeof value);
  }
};

template <class T>
struct HostArg<T*, InOut> : HostArgBase {
  T value{};
  bool read(ArgReader& in) { return in.get(value); }
  T* driver_arg() { return &value; }
  T* session_arg() { return &value; }
  void write(ReplyWriter& out) { out.put(&value, sizeof value); }
};

template <>
struct HostArg<void*, Address> : HostArgBase {
  uint64_t value = 0;
  bool read(ArgReader& in) { return in.get(value); }
  void* driver_arg() { return reinterpret_cast<void*>(value); }
  void* session_arg() { return driver_arg(); }
};

template <>
struct HostArg<const char*, CStr> : HostArgBase {
  std::string text;
  bool read(ArgReader& in) {
    uint32_t bytes;
    if (!in.get(bytes) || bytes > in.left()) return false;
    text.resize(bytes);
    // A NUL inside would let our checks and the driver see different strings.
    return in.get(text.data(), bytes) && text.find('\0') == std::string::npos;
  }
  const char* driver_arg() { return text.c_str(); }
  const char* session_arg() { return text.c_str(); }
};

// The number that parameter N carries, as a size; false: negative or not in `limit`.
template <int N, class All>
bool counted(All& all, size_t element, size_t limit, size_t& bytes) {
  const auto n = std::get<N>(all).value;
  if constexpr (std::is_signed_v<decltype(n)>) {
    if (n < 0) return false;
  }
  if (static_cast<uint64_t>(n) > limit / element) return false;
  bytes = static_cast<size_t>(n) * element;
  return true;
}

template <class T>
struct HostArg<const T*, InStruct> : HostArgBase {
  T value{};
  bool read(ArgReader& in) { return in.get(value); }
  const T* driver_arg() { return &value; }
  const T* session_arg() { return &value; }
};

template <class T>
struct HostArg<const T*, InStructOrNull> : HostArgBase {
  bool wanted = false;
  T value{};
  bool read(ArgReader& in) { return get_flag(in, wanted) && in.get(value); }
  const T* driver_arg() { return wanted ? &value : nullptr; }
  const T* session_arg() { return driver_arg(); }
};

template <class P, int N>
struct HostArg<P, InBuf<N>> : HostArgBase {
  std::vector<std::byte> data;
  bool read(ArgReader&) { return true; }
  template <class All>
  bool read_bulk(ArgReader& in, All& all) {
    size_t bytes;
    if (!counted<N>(all, 1, in.left(), bytes)) return false;
    data.resize(bytes);
    return in.get(data.data(), bytes);
  }
  P driver_arg() { return reinterpret_cast<P>(data.data()); }
  P session_arg() { return driver_arg(); }
};

template <class T, int N, int Less>
struct HostArg<const T*, InArray<N, Less>> : HostArgBase {
  std::vector<T> data;
  bool read(ArgReader&) { return true; }
  template <class All>
  bool read_bulk(ArgReader& in, All& all) {
    const auto n = static_cast<uint64_t>(std::get<N>(all).value);
    const uint64_t elements = n < Less ? 0 : n - Less;
    if (elements > in.left() / sizeof(T)) return false;
    data.resize(elements);
    return in.get(data.data(), elements * sizeof(T));
  }
  const T* driver_arg() { return data.data(); }
  const T* session_arg() { return data.data(); }
};

template <class T, int N, size_t Element>
struct HostOutBytes : HostArgBase {
  bool wanted = false;
  std::vector<std::byte> data;
  bool read(ArgReader& in) { return get_flag(in, wanted); }
  template <class All>
  bool read_bulk(ArgReader&, All& all) {
    size_t bytes;
    if (!counted<N>(all, Element, kMaxOutBytes, bytes)) return false;
    if (wanted) data.resize(bytes);
    return true;
  }
  T* driver_arg() { return wanted ? reinterpret_cast<T*>(data.data()) : nullptr; }
  T* session_arg() { return driver_arg(); }
  void write(ReplyWriter& out) {
    if (wanted) out.put(data.data(), data.size());
  }
};
template <class T, int N>
struct HostArg<T*, OutBuf<N>> : HostOutBytes<T, N, 1> {};
template <class T, int N>
struct HostArg<T*, OutArray<N>> : HostOutBytes<T, N, sizeof(T)> {};

template <>
struct HostArg<CUdeviceptr, Dev> : HostArgBase {
  CUdeviceptr value = 0;
  bool read(ArgReader& in) { return in.get(value); }
  template <class Session>
  CUresult resolve(Session& session) {
    return session.owns_device_address(value) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  }
  CUdeviceptr driver_arg() { return value; }
  CUdeviceptr session_arg() { return value; }
};

template <class A, sluice_handle_kind Kind, bool NullAllowed>
struct HostHandleIn : HostArgBase {
  WireHandle<Kind> handle;
  A object{};
  bool read(ArgReader& in) { return in.get(handle.value); }
  template <class Session>
  CUresult resolve(Session& session) {
    if (handle.value == 0) return NullAllowed ? CUDA_SUCCESS : invalid_handle<Kind>();
    if (Kind == SLUICE_HANDLE_STREAM && handle.value <= 2) {  // CU_STREAM_LEGACY, _PER_THREAD
      object = reinterpret_cast<A>(handle.value);
      return NullAllowed ? CUDA_SUCCESS : invalid_handle<Kind>();
    }
    const std::optional<void*> found = session.handles().driver_object(Kind, handle.value);
    if (!found) return invalid_handle<Kind>();
    object = static_cast<A>(*found);
    return CUDA_SUCCESS;
  }
  A driver_arg() { return object; }
  WireHandle<Kind> session_arg() { return handle; }
};
template <class A, sluice_handle_kind Kind>
struct HostArg<A, HIn<Kind>> : HostHandleIn<A, Kind, false> {};
template <class A, sluice_handle_kind Kind>
struct HostArg<A, HInOrNull<Kind>> : HostHandleIn<A, Kind, true> {};
template <class A, sluice_handle_kind Kind>
struct HostArg<A, HEnd<Kind>> : HostHandleIn<A, Kind, false> {
  template <class Session>
  void finish(Session& session) {
    session.handles().remove(this->handle.value);
  }
};

template <class A, sluice_handle_kind Kind>
struct HostArg<A*, HOut<Kind>> : HostArgBase {
  bool wanted = false;
  A object{};
  WireHandle<Kind> handle;
  bool read(ArgReader& in) { return get_flag(in, wanted); }
  template <class Session>
  CUresult resolve(Session& session) {
    if (!wanted) return CUDA_ERROR_INVALID_VALUE;
    // Asked before the call, so that no object is made that could not be named.
    return session.handles().has_room(Kind) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
  }
  A* driver_arg() { return &object; }
  WireHandle<Kind>* session_arg() { return &handle; }
  template <class Session>
  void finish(Session& session) {
    handle.value = session.handles().add(Kind, object);
  }
  void write(ReplyWriter& out) { out.put(&handle.value, sizeof handle.value); }
};

template <class Function, class Tags>
struct HostArgs;
template <class... A, class... Tags>
struct HostArgs<CUresult (*)(A...), TagList<Tags...>> {
  using Tuple = std::tuple<HostArg<A, Tags>...>;
};

// One row. `by_session` and `by_driver` call the method or the function of that name; the first is
// a type that says so where there is none.
struct NoSuchMethod {};

// One function for all rows. Inlined into each, it makes GCC 12 warn of copies that never happen.
[[gnu::noinline]] inline Error malformed_arguments(const char* call) {
  return {0, std::string("malformed arguments of ") + call};
}

template <class Row, class Session, class BySession, class ByDriver>
Result<CUresult> run_row(Session& session, std::span<const std::byte> body, ReplyWriter& reply,
                         BySession by_session, ByDriver by_driver) {
  typename HostArgs<typename Row::Function, typename Row::Tags>::Tuple args;
  ArgReader in(body);
  const bool complete = std::apply(
      [&](auto&... arg) {
        return (true && ... && arg.read(in)) && (true && ... && arg.read_bulk(in, args));
      },
      args);
  if (!complete || in.left() >= SLUICE_RECORD_ALIGN) return malformed_arguments(Row::kName);

  constexpr bool kInSession =
      !std::is_same_v<decltype(std::apply(
                          [&](auto&... arg) { return by_session(arg.session_arg()...); }, args)),
                      NoSuchMethod>;
  CUresult status = CUDA_SUCCESS;
  if constexpr (kInSession) {
    // Only addresses are checked for it; handles are its own business.
    std::apply(
        [&](auto&... arg) {
          [[maybe_unused]] const auto check = [&](auto& one) {
            if constexpr (std::is_same_v<std::remove_cvref_t<decltype(one)>,
                                         HostArg<CUdeviceptr, Dev>>) {
              if (status == CUDA_SUCCESS) status = one.resolve(session);
            }
          };
          (check(arg), ...);
        },
        args);
    if (status == CUDA_SUCCESS)
      status = std::apply([&](auto&... arg) { return by_session(arg.session_arg()...); }, args);
  } else {
    std::apply(
        [&](auto&... arg) {
          ((status = status == CUDA_SUCCESS ? arg.resolve(session) : status), ...);
        },
        args);
    if (status == CUDA_SUCCESS)
      status = std::apply([&](auto&... arg) { return by_driver(arg.driver_arg()...); }, args);
    if (status == CUDA_SUCCESS) std::apply([&](auto&... arg) { (arg.finish(session), ...); }, args);
  }
  if (status == CUDA_SUCCESS) std::apply([&](auto&... arg) { (arg.write(reply), ...); }, args);
  return status;
}

}  // namespace internal

// Runs the generic call `opcode` whose arguments are `body` (a private copy). The status is the
// program's; `reply` holds results only if it is CUDA_SUCCESS. An Error means that the record was
// malformed or the opcode unknown (the worker answers those before): the session's end, because its
// guest's library is broken or hostile. `api` is anything with members named like the driver's
// functions (mediator/gpu/driver_api.h).
template <class Session, class Api>
Result<CUresult> dispatch_call(Session& session, Api& api, uint16_t opcode,
                               std::span<const std::byte> body, ReplyWriter& reply) {
  switch (opcode) {
#define SLUICE_DISPATCH_ROW(op, function, status, ...)        \
  case op:                                                    \
    return internal::run_row<Call<op>>(                       \
        session, body, reply,                                 \
        [&]<class... A>(A... a) {                             \
          if constexpr (requires { session.function(a...); }) \
            return session.function(a...);                    \
          else                                                \
            return internal::NoSuchMethod{};                  \
        },                                                    \
        [&]<class... A>(A... a) -> CUresult {                 \
          if constexpr (requires { api.function(a...); })     \
            return api.function(a...);                        \
          else                                                \
            return CUDA_ERROR_NOT_SUPPORTED;                  \
        });
    SLUICE_GENERIC_CALLS(SLUICE_DISPATCH_ROW)
#undef SLUICE_DISPATCH_ROW
    default:
      return Error{0, "unknown opcode " + std::to_string(opcode)};
  }
}

}  // namespace sluice::calls

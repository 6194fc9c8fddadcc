// SPDX-License-Identifier: Apache-2.0
// Result<T>: a value or an Error. For what a guest, a peer or the machine got wrong; never for our
// own bugs (base/check.h). Every program uses it; it owns nothing but the value.
#pragma once

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>
#include <variant>

namespace sluice {

// An error that a person reads: what was wrong and, where one can, what to do.
struct Error {
  int code = 0;         // errno, CUresult, or 0 where only the message says it
  std::string message;  // one line, no trailing full stop or newline

  // `what` failed with the current errno.
  static Error from_errno(const std::string& what, int saved_errno = errno) {
    return {saved_errno, what + ": " + std::strerror(saved_errno)};
  }
  // The same error with its circumstances in front.
  Error with_context(const std::string& context) && {
    message = context + ": " + message;
    return std::move(*this);
  }
};

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : v_(std::move(value)) {}      // NOLINT: implicit by design
  Result(Error error) : v_(std::move(error)) {}  // NOLINT
  explicit operator bool() const { return v_.index() == 0; }
  bool ok() const { return v_.index() == 0; }
  T& value() & { return std::get<0>(v_); }
  const T& value() const& { return std::get<0>(v_); }
  T&& value() && { return std::get<0>(std::move(v_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  const Error& error() const& { return std::get<1>(v_); }
  Error&& error() && { return std::get<1>(std::move(v_)); }

 private:
  std::variant<T, Error> v_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : failed_(true), error_(std::move(error)) {}  // NOLINT
  explicit operator bool() const { return !failed_; }
  bool ok() const { return !failed_; }
  const Error& error() const& { return error_; }
  Error&& error() && { return std::move(error_); }

 private:
  bool failed_ = false;
  Error error_;
};

}  // namespace sluice

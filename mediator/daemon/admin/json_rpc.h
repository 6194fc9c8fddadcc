// SPDX-License-Identifier: Apache-2.0
// JSON-RPC 2.0 (www.jsonrpc.org/specification) without I/O: one line of text in, one line of text
// out, perhaps later. Used by the admin server in sluiced's one thread; tests drive it directly.
// A request is untrusted text of bounded length; whatever it holds, the answer is a JSON-RPC error
// and nothing else happens.
#pragma once

#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "mediator/base/result.h"

namespace sluice {

// Codes of the specification, and one of ours for what a method itself refuses.
enum RpcCode {
  kRpcParseError = -32700,
  kRpcInvalidRequest = -32600,
  kRpcMethodNotFound = -32601,
  kRpcInvalidParams = -32602,
  kRpcRefused = -32000,  // data.errno says why, where there is one
  kRpcNotPermitted = -32001,
};

struct RpcError {
  int code;
  std::string message;
  int saved_errno = 0;
};

// What a method answers with: once, now or later.
class RpcReply {
 public:
  using Deliver = std::function<void(boost::json::object)>;
  RpcReply(boost::json::value id, Deliver deliver)
      : id_(std::move(id)), deliver_(std::move(deliver)) {}
  void value(boost::json::value result) const;
  void error(const RpcError& error) const;
  void error(const Error& error) const {
    this->error(RpcError{kRpcRefused, error.message, error.code});
  }

 private:
  boost::json::value id_;
  Deliver deliver_;
};

// Typed access to a request's params, by name. Remembers the first thing wrong; finish() adds
// whatever was not asked for.
class RpcParams {
 public:
  explicit RpcParams(const boost::json::object& params) : params_(params) {}
  std::optional<std::string> text(const char* name);
  std::optional<uint64_t> number(const char* name, uint64_t low, uint64_t high);
  // A number of bytes, or a string like "8G".
  std::optional<uint64_t> size(const char* name);
  std::string required_text(const char* name);
  // nullopt: all is well.
  std::optional<RpcError> finish();

 private:
  const boost::json::value* get(const char* name);
  void fail(std::string message);
  const boost::json::object& params_;
  std::map<std::string, bool> asked_;
  std::optional<RpcError> error_;
};

class RpcDispatcher {
 public:
  using Method = std::function<void(const boost::json::object& params, RpcReply reply)>;
  // `line`: the answer without newline; empty: there is none (notifications only).
  using Respond = std::function<void(std::string line)>;

  void add(std::string name, Method method) { methods_[std::move(name)] = std::move(method); }
  // Runs what it is given later, in this thread, when others have had their turn.
  using Later = std::function<void(std::function<void()>)>;
  // Calls `respond` exactly once, before it returns or later. With `later` a batch's requests
  // begin one at a time, and nothing of it is held for longer than `later` holds it.
  void handle(std::string_view line, Respond respond, const Later& later = nullptr) const;

 private:
  struct Batch;
  void next_of(const std::shared_ptr<Batch>& batch) const;
  void handle_one(const boost::json::value& request, RpcReply::Deliver deliver) const;
  std::map<std::string, Method, std::less<>> methods_;
};

// An answer to text that could not be read at all.
std::string rpc_error_line(int code, const std::string& message);

}  // namespace sluice

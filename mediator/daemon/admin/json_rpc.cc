// SPDX-License-Identifier: Apache-2.0
#include "mediator/daemon/admin/json_rpc.h"

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <cmath>
#include <memory>

#include "mediator/base/limits.h"
#include "mediator/core/domain_xml.h"

namespace sluice {

namespace json = boost::json;

namespace {

json::object error_object(json::value id, const RpcError& e) {
  json::object error{{"code", e.code}, {"message", e.message}};
  if (e.saved_errno) error["data"] = json::object{{"errno", e.saved_errno}};
  return {{"jsonrpc", "2.0"}, {"id", std::move(id)}, {"error", std::move(error)}};
}

}  // namespace

// Collects the answers of a batch, as text and no more than a client may leave unread; the last one
// sends them.
struct RpcDispatcher::Batch {
  json::value requests;
  Later later;
  Respond respond;
  size_t begun = 0, done = 0;
  std::string answers;
  bool too_long = false;

  size_t size() const { return requests.get_array().size(); }
  void add(const json::object& answer) {
    if (!answer.empty() && !too_long)
      answers += (answers.empty() ? "" : ",") + json::serialize(answer);
    too_long = too_long || answers.size() > limits::kMaxAdminBacklogBytes;
    if (too_long) std::string().swap(answers);
    if (++done < size()) return;
    if (too_long)
      return respond(rpc_error_line(kRpcInvalidRequest, "the answers of this batch are too long"));
    respond(answers.empty() ? std::string() : "[" + answers + "]");
  }
};

std::string rpc_error_line(int code, const std::string& message) {
  return json::serialize(error_object(nullptr, {code, message}));
}

void RpcReply::value(json::value result) const {
  deliver_({{"jsonrpc", "2.0"}, {"id", id_}, {"result", std::move(result)}});
}
void RpcReply::error(const RpcError& e) const { deliver_(error_object(id_, e)); }

void RpcDispatcher::handle(std::string_view line, Respond respond, const Later& later) const {
  boost::system::error_code bad;
  // Depth is bounded by the parser (32), size by the connection.
  json::value request = json::parse(json::string_view(line.data(), line.size()), bad);
  if (bad) return respond(rpc_error_line(kRpcParseError, "not JSON: " + bad.message()));

  auto send = [](const Respond& to, const json::object& answer) {
    to(answer.empty() ? std::string() : json::serialize(answer));
  };
  if (!request.is_array())
    return handle_one(request, [=](json::object answer) { send(respond, answer); });

  const json::array& requests = request.get_array();
  if (requests.empty() || requests.size() > limits::kMaxAdminBatch)
    return respond(rpc_error_line(kRpcInvalidRequest,
                                  "a batch has 1 to " + std::to_string(limits::kMaxAdminBatch) +
                                      " requests, this one " + std::to_string(requests.size())));
  auto batch = std::make_shared<Batch>();
  batch->requests = std::move(request);
  batch->later = later;
  batch->respond = std::move(respond);
  next_of(batch);
}

void RpcDispatcher::next_of(const std::shared_ptr<Batch>& batch) const {
  do {
    const size_t i = batch->begun++;
    handle_one(batch->requests.get_array()[i],
               [batch](const json::object& answer) { batch->add(answer); });
  } while (!batch->later && batch->begun < batch->size());
  if (batch->begun < batch->size()) batch->later([this, batch] { next_of(batch); });
}

// Delivers an empty object where no answer is due.
void RpcDispatcher::handle_one(const json::value& request, RpcReply::Deliver deliver) const {
  auto invalid = [&](const char* why) {
    deliver(error_object(nullptr, {kRpcInvalidRequest, why}));
  };
  if (!request.is_object()) return invalid("a request is an object");
  const json::object& o = request.get_object();
  const json::value* version = o.if_contains("jsonrpc");
  if (!version || !version->is_string() || version->get_string() != "2.0")
    return invalid("\"jsonrpc\" must be \"2.0\"");
  const json::value* id = o.if_contains("id");
  if (id && !id->is_null() && !id->is_string() && !id->is_number())
    return invalid("\"id\" must be a string, a number or null");
  // 1e999 is a number to the parser, and what is written for it is none.
  if (id && id->is_double() && !std::isfinite(id->get_double()))
    return invalid("\"id\" must be a finite number");
  const json::value* method = o.if_contains("method");
  if (!method || !method->is_string()) return invalid("\"method\" must be a string");

  const bool notification = id == nullptr;
  RpcReply reply(notification ? json::value() : *id, [notification, deliver](json::object answer) {
    deliver(notification ? json::object() : std::move(answer));
  });
  auto it = methods_.find(std::string_view(method->get_string()));
  if (it == methods_.end()) return reply.error(RpcError{kRpcMethodNotFound, "no such method"});
  const json::value* params = o.if_contains("params");
  static const json::object kNone;
  if (params && !params->is_object())
    return reply.error(RpcError{kRpcInvalidParams, "\"params\" must be an object (by name)"});
  it->second(params ? params->get_object() : kNone, reply);
}

const json::value* RpcParams::get(const char* name) {
  asked_[name] = true;
  const json::value* v = params_.if_contains(name);
  return v && !v->is_null() ? v : nullptr;
}

void RpcParams::fail(std::string message) {
  if (!error_) error_ = RpcError{kRpcInvalidParams, std::move(message)};
}

std::optional<std::string> RpcParams::text(const char* name) {
  const json::value* v = get(name);
  if (!v) return std::nullopt;
  if (!v->is_string()) {
    fail(std::string(name) + " must be a string");
    return std::nullopt;
  }
  return std::string(v->get_string());
}

std::string RpcParams::required_text(const char* name) {
  auto t = text(name);
  if (!t) fail(std::string(name) + " is missing");
  return t.value_or("");
}

std::optional<uint64_t> RpcParams::number(const char* name, uint64_t low, uint64_t high) {
  const json::value* v = get(name);
  if (!v) return std::nullopt;
  std::optional<uint64_t> n;
  if (v->is_int64() && v->get_int64() >= 0) n = static_cast<uint64_t>(v->get_int64());
  if (v->is_uint64()) n = v->get_uint64();
  if (n && *n >= low && *n <= high) return n;
  fail(std::string(name) + " must be a whole number from " + std::to_string(low) + " to " +
       std::to_string(high));
  return std::nullopt;
}

std::optional<uint64_t> RpcParams::size(const char* name) {
  const json::value* v = get(name);
  if (!v || !v->is_string()) return number(name, 0, UINT64_MAX);
  auto bytes = parse_byte_size(std::string_view(v->get_string()));
  if (bytes) return *bytes;
  fail(std::string(name) + " is " + bytes.error().message);
  return std::nullopt;
}

std::optional<RpcError> RpcParams::finish() {
  for (const auto& [key, value] : params_)
    if (!asked_.count(std::string(key))) fail("unknown parameter '" + std::string(key) + "'");
  return error_;
}

}  // namespace sluice

// SPDX-License-Identifier: Apache-2.0
#include "mediator/cli/admin_client.h"

#include <sys/socket.h>

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>

#include "mediator/base/unix_socket.h"
#include "mediator/cli/waiting.h"

namespace sluice {

namespace json = boost::json;

namespace {

Error no_answer(int seconds) {
  return {ETIMEDOUT, "sluiced has not answered within " + std::to_string(seconds) +
                         " s; 'systemctl status sluiced'"};
}

// sluiced does what it has been sent, however late it reads that.
bool changes_something(std::string_view method) {
  return method.ends_with(".create") || method.ends_with(".set") || method.ends_with(".delete");
}

}  // namespace

Result<AdminClient> AdminClient::connect(const std::string& socket_path, int timeout_s) {
  AdminClient c;
  c.timeout_s_ = timeout_s;
  c.awaited_ = "sluiced to answer on " + socket_path + ", for up to " + std::to_string(timeout_s) +
               " s ('systemctl status sluiced')";
  const cli::Waiting waiting(c.awaited_);
  // Where as many wait as the socket's queue has places for, connecting waits as well.
  auto socket = connect_unix(socket_path, SOCK_STREAM, timeout_s);
  if (!socket) {
    Error e = socket.error();
    if (e.code == EAGAIN) return no_answer(timeout_s);
    if (e.code == ENOENT || e.code == ECONNREFUSED) e.message += " (is sluiced running?)";
    if (e.code == EACCES) e.message += " (its group may: 'adduser YOU sluice', and log in anew)";
    return e;
  }
  c.socket_ = std::move(*socket);
  return c;
}

Result<json::value> AdminClient::call(const std::string& method, json::object params) {
  const cli::Waiting waiting(awaited_);
  const uint64_t id = next_id_++;
  std::string line =
      json::serialize(json::object{
          {"jsonrpc", "2.0"}, {"id", id}, {"method", method}, {"params", std::move(params)}}) +
      "\n";
  for (size_t sent = 0; sent < line.size();) {
    ssize_t n = ::send(socket_.get(), line.data() + sent, line.size() - sent, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    // A refusal may have come before we could ask; it is read below.
    if (n < 0 && errno == EPIPE) break;
    if (n < 0 && errno == EAGAIN) return no_answer(timeout_s_);
    if (n < 0) return Error::from_errno("send to sluiced");
    sent += static_cast<size_t>(n);
  }
  size_t end;
  while ((end = incoming_.find('\n')) == std::string::npos) {
    char buffer[65536];
    ssize_t n = ::recv(socket_.get(), buffer, sizeof buffer, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) {
      Error e = no_answer(timeout_s_);
      if (changes_something(method)) e.message += "; it may be done yet";
      return e;
    }
    if (n < 0) return Error::from_errno("receive from sluiced");
    if (n == 0) return Error{EPIPE, "sluiced closed the connection"};
    incoming_.append(buffer, static_cast<size_t>(n));
  }
  boost::system::error_code bad;
  json::value answer = json::parse(json::string_view(incoming_.data(), end), bad);
  incoming_.erase(0, end + 1);
  if (bad || !answer.is_object()) return Error{EPROTO, "sluiced's answer is not JSON-RPC"};
  json::object& o = answer.get_object();
  if (json::value* error = o.if_contains("error"); error && error->is_object()) {
    Error e{-32000, "error without a message"};
    if (auto* code = error->get_object().if_contains("code"); code && code->is_int64())
      e.code = static_cast<int>(code->get_int64());
    if (auto* text = error->get_object().if_contains("message"); text && text->is_string())
      e.message = std::string(text->get_string());
    return e;
  }
  json::value* result = o.if_contains("result");
  if (!result) return Error{EPROTO, "sluiced's answer has neither result nor error"};
  return std::move(*result);
}

}  // namespace sluice

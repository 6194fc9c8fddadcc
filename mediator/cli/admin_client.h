// SPDX-License-Identifier: Apache-2.0
// AdminClient: one blocking connection to sluiced's admin socket. sluicectl owns it; one thread.
#pragma once

#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <string>

#include "mediator/base/fd.h"
#include "mediator/base/result.h"

namespace sluice {

class AdminClient {
 public:
  // This and each call fail when sluiced has not answered after this many seconds. Where sluicectl
  // waits for longer than seconds, it says so (waiting.h).
  static Result<AdminClient> connect(const std::string& socket_path, int timeout_s);
  // The method's result, or the error that sluiced answered (code: JSON-RPC's).
  Result<boost::json::value> call(const std::string& method, boost::json::object params = {});

 private:
  Fd socket_;
  int timeout_s_ = 0;
  std::string awaited_;  // for Waiting
  std::string incoming_;
  uint64_t next_id_ = 1;
};

}  // namespace sluice

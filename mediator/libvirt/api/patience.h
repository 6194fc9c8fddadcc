// SPDX-License-Identifier: Apache-2.0
// Asks libvirt on a thread of its own, so that a libvirtd that is stopped keeps nobody waiting for
// ever. After an answer that thread has ended, with all that libraries keep for a thread: else that
// would be freed while the program ends, and its libraries too. Without an answer it stays: for
// programs that end soon after. A service waits on, and says so (however_long).
#pragma once

#include <cerrno>
#include <chrono>
#include <functional>
#include <future>
#include <string>
#include <thread>
#include <utility>

#include "mediator/base/result.h"

namespace sluice::libvirt {

inline Error not_answered(int seconds) {
  return {ETIMEDOUT, "libvirt has not answered within " + std::to_string(seconds) +
                         " s; 'systemctl status libvirtd'"};
}

// What `ask` answers, which outlives this call; ETIMEDOUT after `seconds`.
template <class T>
Result<T> within(int seconds, std::function<Result<T>()> ask) {
  std::packaged_task<Result<T>()> task(std::move(ask));
  std::future<Result<T>> answer = task.get_future();
  std::thread asks(std::move(task));
  if (answer.wait_for(std::chrono::seconds(seconds)) != std::future_status::ready) {
    asks.detach();
    return not_answered(seconds);
  }
  asks.join();
  return answer.get();
}

// The same for what may take as long as it needs, as writing a domain's memory does: ETIMEDOUT once
// `ping` has no answer after `seconds`.
template <class T>
Result<T> while_answering(int seconds, std::function<Result<T>()> ask,
                          const std::function<Result<void>()>& ping) {
  std::packaged_task<Result<T>()> task(std::move(ask));
  std::future<Result<T>> answer = task.get_future();
  std::thread asks(std::move(task));
  while (answer.wait_for(std::chrono::seconds(seconds)) != std::future_status::ready) {
    // Another error of the ping is one of `ask` as well.
    const auto alive = within<void>(seconds, ping);
    if (alive || alive.error().code != ETIMEDOUT) continue;
    asks.detach();
    return alive.error();
  }
  asks.join();
  return answer.get();
}

// What `ask` answers; `silent` is called, by the caller's thread, once there is no answer after
// `seconds`.
template <class T>
Result<T> however_long(int seconds, std::function<Result<T>()> ask,
                       const std::function<void(const Error&)>& silent) {
  std::packaged_task<Result<T>()> task(std::move(ask));
  std::future<Result<T>> answer = task.get_future();
  std::thread asks(std::move(task));
  if (answer.wait_for(std::chrono::seconds(seconds)) != std::future_status::ready)
    silent(not_answered(seconds));
  asks.join();
  return answer.get();
}

}  // namespace sluice::libvirt

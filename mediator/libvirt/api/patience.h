// SPDX-License-Identifier: Apache-2.0
// Asks libvirt on a thread of its own, so that a libvirtd that is stopped keeps nobody waiting for
// ever. For programs that end soon after, as that thread stays.
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

// What `ask` answers, which outlives this call; ETIMEDOUT after `seconds`.
template <class T>
Result<T> within(int seconds, std::function<Result<T>()> ask) {
  std::packaged_task<Result<T>()> task(std::move(ask));
  std::future<Result<T>> answer = task.get_future();
  std::thread(std::move(task)).detach();
  if (answer.wait_for(std::chrono::seconds(seconds)) != std::future_status::ready)
    return Error{ETIMEDOUT, "libvirt has not answered within " + std::to_string(seconds) +
                                " s; 'systemctl status libvirtd'"};
  return answer.get();
}

}  // namespace sluice::libvirt

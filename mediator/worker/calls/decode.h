// SPDX-License-Identifier: Apache-2.0
// From a record's private copy to a handler. Custom calls: custom_calls.h, one handler for each row
// of the table. Generic calls: dispatch.h, which marshals by the row's tags and calls the driver,
// or the method of this name in generic_calls.h where the session does the call itself.
#pragma once

#include <cstddef>
#include <span>

#include <functional>

#include "mediator/worker/session/worker_session.h"

namespace sluice::worker {

// One record. Ends the session if it is malformed. Decoder, without the session's lock.
void decode(WorkerSession& s, const sluice_record& record, std::span<const std::byte> body);

// A generic call, now. Decoder or job thread, without the session's lock.
void run_generic(WorkerSession& s, const Call& call, std::span<const std::byte> body);
// The same, as a job. `body` is copied now.
std::function<void()> generic_job(WorkerSession& s, Call call, std::span<const std::byte> body);

}  // namespace sluice::worker

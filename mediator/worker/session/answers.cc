// SPDX-License-Identifier: Apache-2.0
#include "mediator/worker/session/answers.h"

#include <algorithm>
#include <cstring>

namespace sluice::worker {

void Answers::send_text(const std::string& text, sluice_printed_to to) {
  for (size_t at = 0; at < text.size(); at += SLUICE_PRINTED_MAX_BYTES) {
    std::byte piece[sizeof(sluice_printed) + SLUICE_PRINTED_MAX_BYTES];
    const sluice_printed header{
        static_cast<uint32_t>(std::min<size_t>(text.size() - at, SLUICE_PRINTED_MAX_BYTES)),
        static_cast<uint32_t>(to)};
    std::memcpy(piece, &header, sizeof header);
    std::memcpy(piece + sizeof header, text.data() + at, header.bytes);
    replies.send(0, SLUICE_CALL_PRINTED, CUDA_SUCCESS,
                 std::span(piece).first(sizeof header + header.bytes));
  }
}

}  // namespace sluice::worker

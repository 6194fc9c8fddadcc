// SPDX-License-Identifier: Apache-2.0
// What launching more blocks than are to stay buys (mediator/worker/launch/sms/sm_part.h,
// kOverLaunch): a model of a GPU's block distributor, in virtual time. By hand; nothing to pass or
// fail; one JSON object a line.
//
//   over_launch [SEEDS]      default 20
//
// A clone's workers belong on some of the SMs. Its blocks are handed out one after another,
// each to an SM that has room; one that comes to an SM that is not the clone's, or has its quota,
// leaves after kLeaveNs. Which SM gets the next block is not documented, so there are three rules:
// the one with most room, each in turn, any. The other SMs are full of other vGPUs' workers, hold
// half as much, or are empty (their vGPUs have just left). Where all blocks have been handed out
// before the clone's SMs are full, those stay as they are until the next relaunch.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <queue>
#include <random>
#include <vector>

#include "mediator/worker/launch/sms/sm_part.h"

namespace {

using namespace sluice;
constexpr uint32_t kSms = 132, kPerSm = 8;
// A start and a look at the set: docs/results (an H200's empty blocks). A block handed out each 8
// ns: some 1,000 in 8 us.
constexpr uint64_t kLeaveNs = 1'000, kNextNs = 8;

enum class Rule { kMostRoom, kInTurn, kAny };
constexpr const char* kRules[] = {"most room", "in turn", "any"};

struct Result {
  double full = 0;     // workers that there are, of those that there were to be
  double empty = 0;    // of the clone's SMs, without any
  double done_us = 0;  // until the last block was handed out
};

Result launch(Rule rule, uint32_t part, uint32_t others, double factor, uint64_t seed) {
  std::mt19937_64 random(seed);
  SmSet sms;
  std::vector<uint32_t> order(kSms);
  for (uint32_t i = 0; i < kSms; ++i) order[i] = i;
  std::shuffle(order.begin(), order.end(), random);
  std::vector<char> own(kSms);
  for (uint32_t i = 0; i < part; ++i) own[order[i]] = 1, sms.add(order[i]);
  const worker::Part plan = worker::plan_part(sms, kSms, kPerSm, 1u << 20, 1u << 30);
  const auto blocks = static_cast<uint32_t>(plan.blocks * factor / worker::kOverLaunch);
  std::vector<uint32_t> room(kSms), workers(kSms);
  for (uint32_t i = 0; i < kSms; ++i) room[i] = own[i] ? kPerSm : kPerSm - others;
  std::priority_queue<std::pair<uint64_t, uint32_t>, std::vector<std::pair<uint64_t, uint32_t>>,
                      std::greater<>>
      leaving;
  uint64_t now = 0;
  uint32_t turn = static_cast<uint32_t>(random() % kSms);
  for (uint32_t b = 0; b < blocks; ++b, now += kNextNs) {
    uint32_t sm = kSms;
    while (true) {
      for (; !leaving.empty() && leaving.top().first <= now; leaving.pop())
        ++room[leaving.top().second];
      uint32_t seen = 0;
      for (uint32_t k = 0; k < kSms; ++k) {
        const uint32_t i = (turn + k) % kSms;
        if (room[i] == 0) continue;
        if (rule == Rule::kInTurn && sm != kSms) break;
        if (sm == kSms || (rule == Rule::kMostRoom && room[i] > room[sm]) ||
            (rule == Rule::kAny && random() % (seen + 1) == 0))
          sm = i;
        ++seen;
      }
      if (sm != kSms) break;
      if (leaving.empty()) goto out;  // everything is full
      now = leaving.top().first;
    }
    turn = sm + 1;
    --room[sm];
    if (own[sm] && workers[sm] < plan.quota)
      ++workers[sm];
    else
      leaving.push({now + kLeaveNs, sm});
  }
out:
  Result r;
  for (uint32_t i = 0; i < kSms; ++i) {
    r.full += static_cast<double>(workers[i]) / (static_cast<double>(part) * plan.quota);
    r.empty += own[i] && workers[i] == 0 ? 1.0 / part : 0;
  }
  r.done_us = static_cast<double>(now) / 1e3;
  return r;
}

}  // namespace

int main(int argc, char** argv) {
  const int seeds = argc > 1 ? std::max(std::atoi(argv[1]), 1) : 20;
  for (const Rule rule : {Rule::kMostRoom, Rule::kInTurn, Rule::kAny})
    for (const uint32_t others : {kPerSm, kPerSm / 2, 0u})
      for (const uint32_t part : {1u, 33u, 66u, 99u}) {
        std::printf("{\"distributor\":\"%s\",\"others_hold\":%u,\"sms\":%u",
                    kRules[static_cast<int>(rule)], others, part);
        for (const double factor : {1.0, 1.5, 2.0, 3.0, 4.0}) {
          Result mean;
          for (int s = 0; s < seeds; ++s) {
            const Result r = launch(rule, part, others, factor, static_cast<uint64_t>(s) + 1);
            mean.full += r.full / seeds, mean.empty += r.empty / seeds,
                mean.done_us += r.done_us / seeds;
          }
          std::printf(",\"%.1f\":{\"workers\":%.3f,\"empty_sms\":%.3f,\"us\":%.1f}", factor,
                      mean.full, mean.empty, mean.done_us);
        }
        std::printf("}\n");
      }
  return 0;
}

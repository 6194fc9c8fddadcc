// SPDX-License-Identifier: Apache-2.0
// The reader of recorded traces, and the parameter block of a launch.
#include <gtest/gtest.h>

#include <cstring>
#include <stdexcept>

#include "kernels/suite/catalog/trace.h"

namespace sluice::suite {
namespace {

const std::string kGood =
    "sluice-trace 1\n"
    "case small\n"
    "module small.ptx\n"
    "buffer 0 16\n"
    "buffer 1 4\n"
    "upload 0 2 0a0b\n"
    "copy 1 0 0 4 4\n"
    "fill 0 0 3 255\n"
    "symbol table 4 -\n"
    "launch k 2 3 1 32 1 1 64 000000000000000007000000 2 0 8 0:1:4\n"
    "expect 1 1 cdff\n"
    "end\n";

std::string with(const std::string& line, const std::string& instead) {
  std::string text = kGood;
  text.replace(text.find(line), line.size(), instead);
  return text;
}

TEST(SuiteTrace, ReadsEveryStep) {
  const Trace trace = parse_trace(kGood);
  EXPECT_EQ(trace.module, "small.ptx");
  EXPECT_EQ(trace.work.name, "small");
  ASSERT_EQ(trace.work.buffers.size(), 2u);
  EXPECT_EQ(trace.work.buffers[0].initial, std::vector<std::byte>(16, std::byte{0xcd}));
  ASSERT_EQ(trace.work.steps.size(), 6u);
  const auto& upload = std::get<Upload>(trace.work.steps[0]);
  EXPECT_EQ(upload.offset, 2u);
  EXPECT_EQ(upload.bytes, (std::vector<std::byte>{std::byte{0x0a}, std::byte{0x0b}}));
  EXPECT_EQ(std::get<Copy>(trace.work.steps[1]).from_offset, 4u);
  EXPECT_EQ(std::get<Fill>(trace.work.steps[2]).value, 255u);
  EXPECT_TRUE(std::get<SetSymbol>(trace.work.steps[3]).bytes.empty());
  const auto& launch = std::get<Launch>(trace.work.steps[4]);
  EXPECT_EQ(describe(launch), "k<<<(2,3,1), (32,1,1), 64>>>");
  EXPECT_EQ(launch.param_offsets, (std::vector<std::uint32_t>{0, 8}));
  EXPECT_EQ(std::get<Expect>(trace.work.steps[5]).offset, 1u);
}

TEST(SuiteTrace, PointersGoIntoTheParameterBlock) {
  const Trace trace = parse_trace(kGood);
  const std::uint64_t addresses[] = {0x1000, 0x2000};
  const std::vector<std::byte> block = parameters(std::get<Launch>(trace.work.steps[4]), addresses);
  ASSERT_EQ(block.size(), 12u);
  std::uint64_t pointer = 0;
  std::uint32_t number = 0;
  std::memcpy(&pointer, block.data(), 8);
  std::memcpy(&number, block.data() + 8, 4);
  EXPECT_EQ(pointer, 0x2004u);
  EXPECT_EQ(number, 7u);
}

TEST(SuiteTrace, RefusesWhatIsMalformed) {
  const std::pair<std::string, std::string> bad[] = {
      {"sluice-trace 1", "sluice-trace 2"},
      {"end\n", ""},
      {"buffer 1 4", "buffer 3 4"},
      {"buffer 1 4", "buffer 1 99999999999"},
      {"buffer 1 4", "buffer 1 200000000\nbuffer 2 200000000"},
      {"upload 0 2 0a0b", "upload 0 15 0a0b"},
      {"upload 0 2 0a0b", "upload 0 18446744073709551615 0a0b"},
      {"upload 0 2 0a0b", "upload 2 2 0a0b"},
      {"upload 0 2 0a0b", "upload 0 2 0a0"},
      {"upload 0 2 0a0b", "upload 0 2 0a0B"},
      {"upload 0 2 0a0b", "upload 0 2"},
      {"copy 1 0 0 4 4", "copy 1 0 0 14 4"},
      {"copy 1 0 0 4 4", "copy 1 1 0 4 4"},
      {"fill 0 0 3 255", "fill 0 14 3 255"},
      {"fill 0 0 3 255", "fill 0 0 -3 255"},
      {"2 0 8 0:1:4", "2 0 12 0:1:4"},
      {"0:1:4", "5:1:4"},
      {"0:1:4", "0:2:4"},
      {"0:1:4", "0:1"},
      {"expect 1 1 cdff", "wish 1 1 cdff"},
  };
  for (const auto& [line, instead] : bad)
    EXPECT_THROW(parse_trace(with(line, instead)), std::runtime_error) << instead;
}

TEST(SuiteTrace, HoldsAsManyBytesAsItsReaderAllows) {
  EXPECT_EQ(parse_trace(kGood, 20).work.buffers.size(), 2u);
  EXPECT_THROW(parse_trace(kGood, 19), std::runtime_error);
}

}  // namespace
}  // namespace sluice::suite

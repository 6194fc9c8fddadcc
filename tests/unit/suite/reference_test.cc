// SPDX-License-Identifier: Apache-2.0
// The suite's CPU references against published vectors and against properties that do not come
// from the code under test.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "kernels/suite/workloads/options.h"
#include "kernels/suite/workloads/reference.h"
#include "kernels/suite/workloads/workloads.h"

namespace sluice::suite {
namespace {

std::string md5_hex(const std::string& text) {
  const Md5Digest digest =
      md5_digest({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()});
  std::string hex;
  for (const std::uint8_t byte : digest) {
    char two[3];
    std::snprintf(two, sizeof(two), "%02x", byte);
    hex += two;
  }
  return hex;
}

// RFC 1321, appendix A.5.
TEST(SuiteReference, Md5Vectors) {
  EXPECT_EQ(md5_hex(""), "d41d8cd98f00b204e9800998ecf8427e");
  EXPECT_EQ(md5_hex("a"), "0cc175b9c0f1b6a831c399e269772661");
  EXPECT_EQ(md5_hex("abc"), "900150983cd24fb0d6963f7d28e17f72");
  EXPECT_EQ(md5_hex("message digest"), "f96b697d7cb7938d525a2f31aaf161d0");
  EXPECT_EQ(md5_hex("abcdefghijklmnopqrstuvwxyz"), "c3fcd3d76192e4007dfb496cca67e13b");
  EXPECT_EQ(md5_hex("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"),
            "d174ab98d277d9f5a5611c2c9f419d9f");
  EXPECT_EQ(md5_hex("12345678901234567890123456789012345678901234567890123456789012345678901234567"
                    "890"),
            "57edf4a22be3c955ac49da2e2107b67a");
}

TEST(SuiteReference, Md5MessagesAreInputIndexAndSalt) {
  const std::vector<std::uint32_t> in = {1,          2,          3,          4,
                                         0x11111111, 0x22222222, 0x33333333, 0x44444444};
  std::vector<std::uint32_t> out(in.size());
  reference_md5(out, in, 0x0102030405060708u);
  const std::string second(
      "\x11\x11\x11\x11\x22\x22\x22\x22\x33\x33\x33\x33\x44\x44\x44\x44"
      "\x01\0\0\0\0\0\0\0\x08\x07\x06\x05\x04\x03\x02\x01",
      32);
  const Md5Digest want =
      md5_digest({reinterpret_cast<const std::uint8_t*>(second.data()), second.size()});
  EXPECT_EQ(std::memcmp(&out[4], want.data(), want.size()), 0);
}

TEST(SuiteReference, TriadIsFused) {
  // 1 + 2^-52 squared is 1 + 2^-51 + 2^-104: only a fused operation keeps the last term.
  const double x = 1.0 + 0x1p-52;
  std::vector<double> a(1);
  const std::vector<double> b = {-(1.0 + 0x1p-51)}, c = {x};
  reference_triad(a, b, c, x);
  EXPECT_EQ(a[0], 0x1p-104);
}

TEST(SuiteReference, MatmulOfSmallMatrices) {
  const std::vector<float> a = {1, 2, 3, 4, 5, 6};     // 2 x 3
  const std::vector<float> b = {7, 8, 9, 10, 11, 12};  // 3 x 2
  std::vector<float> c(4);
  reference_matmul(c, a, b, 0.5f, 2, 3);
  EXPECT_EQ(c, (std::vector<float>{29, 32, 69.5f, 77}));
}

TEST(SuiteReference, ReductionWraps) {
  const std::vector<std::uint32_t> in(10, 0xffffffffu);
  EXPECT_EQ(reference_reduction(in, 0xffffffffu), 10u * 0xfffffffe00000001u);
  std::vector<std::uint32_t> counting(1000);
  std::iota(counting.begin(), counting.end(), 1u);
  EXPECT_EQ(reference_reduction(counting, 3), 3u * 500500u);
}

TEST(SuiteReference, StencilSpreadsAnImpulse) {
  const std::size_t edge = 5;
  std::vector<float> in(edge * edge, 0.0f), out(edge * edge, -1.0f);
  in[2 * edge + 2] = 1.0f;
  reference_stencil2d(out, in, {0.5f, 0.25f, 0.125f}, 2.0f, edge, edge);
  EXPECT_EQ(out[2 * edge + 2], 1.0f);
  for (const std::size_t at : {1 * edge + 2, 3 * edge + 2, 2 * edge + 1, 2 * edge + 3}) {
    EXPECT_EQ(out[at], 0.5f);
  }
  for (const std::size_t at : {1 * edge + 1, 1 * edge + 3, 3 * edge + 1, 3 * edge + 3}) {
    EXPECT_EQ(out[at], 0.25f);
  }
  EXPECT_EQ(std::accumulate(out.begin(), out.end(), 0.0f), 4.0f);  // the border stays 0
}

TEST(SuiteReference, StencilCarriesTheBorder) {
  const std::vector<float> in = {1, 2, 3, 4, 5, 6};
  std::vector<float> out(6);
  reference_stencil2d(out, in, {9, 9, 9}, 1.0f, 3, 2);
  EXPECT_EQ(out, in);
}

TEST(SuiteReference, HistogramCountsEveryByteOnce) {
  const std::vector<std::uint32_t> words = {0x01020304, 0xff0304ff, 0};
  std::array<std::uint32_t, kHistogramBins> bins{};
  reference_histogram(bins, words, 0);
  EXPECT_EQ(bins[0], 4u);
  EXPECT_EQ(bins[3], 2u);
  EXPECT_EQ(bins[4], 2u);
  EXPECT_EQ(bins[0xff], 2u);
  EXPECT_EQ(std::accumulate(bins.begin(), bins.end(), 0u), 12u);
  std::array<std::uint32_t, kHistogramBins> masked{};
  reference_histogram(masked, words, 0x35);
  for (std::size_t i = 0; i < kHistogramBins; ++i) EXPECT_EQ(masked[i ^ 0x35], bins[i]);
}

TEST(SuiteReference, RandomFloatsAreInRange) {
  Generator generator(7);
  double sum = 0;
  for (int i = 0; i < 10000; ++i) {
    const float f = generator.next_float();
    const double d = generator.next_double();
    EXPECT_TRUE(f >= -1.0f && f < 1.0f && d >= -1.0 && d < 1.0);
    sum += f;
  }
  EXPECT_LT(std::fabs(sum), 500.0);
}

TEST(SuiteOptions, Parse) {
  const char* const all[] = {"--size",  "12",         "--launches=34", "--seconds",   "1.5",
                             "--depth", "6",          "--streams",     "2",           "--chain",
                             "3",       "--verify",   "last",          "--seed",      "9",
                             "--json",  "--progress", "--pageable",    "--pause-ms=7"};
  const Options options = parse_options(all);
  EXPECT_EQ(options.size, 12u);
  EXPECT_EQ(options.launches, 34u);
  EXPECT_EQ(options.seconds, 1.5);
  EXPECT_EQ(options.depth, 6u);
  EXPECT_EQ(options.streams, 2u);
  EXPECT_EQ(options.chain, 3u);
  EXPECT_EQ(options.verify_every, 0u);
  EXPECT_EQ(options.seed, 9u);
  EXPECT_EQ(options.pause_ms, 7u);
  EXPECT_TRUE(options.json && options.progress && options.pageable);
  EXPECT_EQ(parse_options({}).launches, kDefaultLaunches);
  const char* const every[] = {"--verify=every"};
  EXPECT_EQ(parse_options(every).verify_every, 1u);
}

TEST(SuiteOptions, ScaleIsOfTheDefaultAndInWork) {
  const char* const scaled[] = {"--scale", "4"};
  const Options options = parse_options(scaled);
  EXPECT_EQ(size_of(options, 100), 400u);
  EXPECT_EQ(size_of(options, 100, 2), 200u);
  const char* const both[] = {"--scale=0.001", "--size=7"};
  EXPECT_EQ(size_of(parse_options(both), 100), 7u);
  const char* const tiny[] = {"--scale=0.001"};
  EXPECT_EQ(size_of(parse_options(tiny), 100), 1u);
  const char* const quarter[] = {"--scale=0.25"};
  const Options smaller = parse_options(quarter);
  for (const auto make :
       {make_triad, make_matmul, make_reduction, make_stencil2d, make_histogram, make_md5}) {
    const auto whole = make(Options{}), part = make(smaller);
    const std::string name = whole->name();
    EXPECT_EQ(part->size() * (name == "matmul" || name == "stencil2d" ? 2 : 4), whole->size())
        << name;
  }
}

TEST(SuiteOptions, Refuse) {
  for (const auto& arguments : std::vector<std::vector<const char*>>{{"--size"},
                                                                     {"--size", "0"},
                                                                     {"--size", "-1"},
                                                                     {"--size", "12x"},
                                                                     {"--depth", "0"},
                                                                     {"--depth", "65"},
                                                                     {"--seconds", "0"},
                                                                     {"--seconds", "nan"},
                                                                     {"--seconds", "-1"},
                                                                     {"--chain", "65"},
                                                                     {"--verify", "never"},
                                                                     {"--json=yes"},
                                                                     {"size"},
                                                                     {""}}) {
    EXPECT_THROW((void)parse_options(arguments), UsageError) << arguments[0];
  }
}

TEST(SuiteWorkloads, RefuseWhatNoGridCanHold) {
  EXPECT_THROW((void)blocks_for(1ull << 40, 256), UsageError);
  EXPECT_EQ(blocks_for(0x7fffffffull * 256, 256), 0x7fffffffu);
  EXPECT_EQ(blocks_for(257, 256), 2u);
  Options odd;
  odd.size = 6;
  EXPECT_THROW((void)make_histogram(odd), UsageError);
}

TEST(SuiteWorkloads, DefaultsHaveManyBlockTasks) {
  for (const auto make :
       {make_triad, make_matmul, make_reduction, make_stencil2d, make_histogram, make_md5}) {
    const auto workload = make(Options{});
    const LaunchShape shape = workload->shape();
    EXPECT_GE(shape.grid_x * shape.grid_y, 512u) << workload->name();
  }
}

}  // namespace
}  // namespace sluice::suite

// SPDX-License-Identifier: Apache-2.0
// Copies by tensor maps: boxes of all ranks, swizzles, edges, element strides, im2col, reductions,
// several blocks of a cluster, maps that a kernel changes, and what is no map.
#include <functional>

#include "kernels/exec/memory/tensor_map.h"
#include "tests/unit/exec/harness.h"

namespace sluice::exec {
namespace {

constexpr uint32_t kBytes = 4096;

class ExecTensorMap : public ExecTest {
 protected:
  ExecTensorMap() : store_(kBytes / 4 * 16 + 32) {
    const uint64_t base = share(store_);
    tensor_ = reinterpret_cast<uint32_t*>((base + 127) / 128 * 128);
    EXPECT_TRUE(map_.add(reinterpret_cast<uint64_t>(&m_), sizeof m_));
    out_.resize(kBytes);
    out_base_ = share(out_);
    for (uint32_t k = 0; k < kBytes / 4 * 16; ++k) tensor_[k] = 3 * k + 1;
    m_ = {};
    m_.address = reinterpret_cast<uint64_t>(tensor_);
    m_.mark = kTensorMapMark;
  }

  // A tiled map; strides as if there were no padding.
  void tiled(TensorElement element, const std::vector<uint32_t>& sizes,
             const std::vector<uint16_t>& box) {
    m_.element = element;
    m_.rank = static_cast<uint8_t>(sizes.size());
    uint64_t stride = element_bytes(element);
    for (size_t k = 0; k < sizes.size(); ++k) {
      m_.last[k] = sizes[k] - 1;
      m_.box[k] = box[k];
      m_.steps[k] = 1;
      if (k != 0) m_.strides[k - 1] = stride;
      stride *= sizes[k];
    }
  }

  // Thread 0 issues `copy` (the map at %rd0, shared memory at %r9, a barrier at %r8 that expects
  // `bytes`); the block waits and hands its shared memory out.
  RunState run(const std::string& copy, uint32_t bytes, uint32_t span,
               const std::string& more = "") {
    const std::string wait =
        bytes == 0 ? "" : "W: mbarrier.try_wait.parity.shared.b64 %p2, [%r8], 0;\n@!%p2 bra W;\n";
    const std::string body =
        ".shared .align 1024 .b8 s[4096]; .shared .align 8 .b64 full;\n"
        "mov.u32 %r9, s; mov.u32 %r8, full; mov.u32 %r0, %tid.x; mov.u32 %r4, %cluster_ctarank;\n"
        "setp.ne.u32 %p1, %r0, 0;\n"
        "shl.b32 %r1, %r0, 2; add.u32 %r2, %r1, %r9;\n"
        "F: st.shared.u32 [%r2], 0xeeeeeeee; add.u32 %r2, %r2, 128; add.u32 %r1, %r1, 128;\n"
        "setp.lt.u32 %p3, %r1, 4096; @%p3 bra F;\n"
        "@!%p1 mbarrier.init.shared.b64 [%r8], 1;\n" +
        more + "fence.mbarrier_init.release.cluster;\n" +
        (bytes == 0 ? ""
                    : "@!%p1 mbarrier.arrive.expect_tx.shared.b64 %rd9, [%r8], " +
                          std::to_string(bytes) + ";\n") +
        "barrier.cluster.arrive; barrier.cluster.wait;\n"
        "@%p1 bra N;\n" +
        copy + "\nN:\n" + wait +
        "barrier.cluster.arrive; barrier.cluster.wait;\n"
        "mad.lo.u32 %r1, %r4, " +
        std::to_string(span) +
        ", 0; cvt.u64.u32 %rd10, %r1; add.u64 %rd10, %rd10, %rd1;\n"
        "shl.b32 %r1, %r0, 2; add.u32 %r2, %r1, %r9; cvt.u64.u32 %rd11, %r1; add.u64 %rd10, %rd10, "
        "%rd11;\n"
        "O: setp.ge.u32 %p3, %r1, " +
        std::to_string(span) +
        "; @%p3 bra E;\n"
        "ld.shared.u32 %r3, [%r2]; st.global.u32 [%rd10], %r3; add.u32 %r1, %r1, 128;\n"
        "add.u32 %r2, %r2, 128; add.u64 %rd10, %rd10, 128; bra O;\nE:\n";
    EXPECT_TRUE(load(kernel(body))) << error_;
    if (!image_) return RunState::kFault;
    return launch(cluster_, {32, 1, 1}, {reinterpret_cast<uint64_t>(&m_), out_base_});
  }
  static std::string load_of(const std::string& point, const std::string& how = "tile",
                             const std::string& rest = "") {
    const auto rank = std::to_string(1 + std::count(point.begin(), point.end(), ','));
    return "cp.async.bulk.tensor." + rank + "d.shared::cluster.global." + how +
           ".mbarrier::complete_tx::bytes [%r9], [%rd0, {" + point + "}], [%r8]" + rest + ";";
  }
  uint32_t word(uint32_t at) const {
    uint32_t v;
    std::memcpy(&v, &out_[at], 4);
    return v;
  }

  std::vector<uint32_t> store_;
  uint32_t* tensor_;
  alignas(128) TensorMap m_;
  std::vector<uint8_t> out_;
  uint64_t out_base_ = 0;
};

TEST_F(ExecTensorMap, BoxesOfAllRanksBeyondTheEdges) {
  const std::vector<uint32_t> sizes = {8, 5, 4, 3, 3};
  const std::vector<uint16_t> box = {8, 2, 2, 2, 2};
  const int at[] = {-4, 4, 2, -1, 1};
  const char* const points[] = {"-4", "-4, 4", "-4, 4, 2", "-4, 4, 2, -1", "-4, 4, 2, -1, 1"};
  for (uint32_t rank = 1; rank <= 5; ++rank) {
    SCOPED_TRACE(rank);
    tiled(TensorElement::kS32, {sizes.begin(), sizes.begin() + rank},
          {box.begin(), box.begin() + rank});
    const uint32_t count = 8u << (rank - 1);
    ASSERT_EQ(run(load_of(points[rank - 1]), count * 4, count * 4), RunState::kDone)
        << fault_.describe();
    for (uint32_t k = 0; k < count; ++k) {
      uint32_t index = 0, rest = k, stride = 1;
      bool inside = true;
      for (uint32_t d = 0; d < rank; ++d) {
        const int c = at[d] + static_cast<int>(rest % box[d]);
        inside = inside && c >= 0 && c < static_cast<int>(sizes[d]);
        index += static_cast<uint32_t>(c) * stride;
        stride *= sizes[d];
        rest /= box[d];
      }
      ASSERT_EQ(word(k * 4), inside ? tensor_[index] : 0) << k;
    }
  }
}

TEST_F(ExecTensorMap, SwizzlesAndNotANumberOutside) {
  for (const uint32_t swizzle : {0u, 1u, 2u, 3u}) {
    SCOPED_TRACE(swizzle);
    const uint32_t width = 8u << swizzle;  // halves
    tiled(TensorElement::kF16, {64, 40}, {static_cast<uint16_t>(width), 20});
    m_.swizzle = static_cast<TensorSwizzle>(swizzle);
    m_.nan_fill = 1;
    ASSERT_EQ(run(load_of("8, 30"), width * 40, width * 40), RunState::kDone) << fault_.describe();
    for (uint32_t row = 0; row < 20; ++row) {
      for (uint32_t c = 0; c < width; c += 2) {
        const uint32_t plain = (row * width + c) * 2;
        const uint32_t bits = swizzle == 3 ? 7 : swizzle == 2 ? 3 : swizzle;
        const uint32_t moved = plain ^ ((plain / 128 & bits) * 16);
        const bool inside = 30 + row < 40 && 8 + c < 64;
        ASSERT_EQ(word(moved), inside ? tensor_[((30 + row) * 64 + 8 + c) / 2] : 0x7fff7fff);
      }
    }
  }
}

// A swizzle wider than the rows: each takes its width.
TEST_F(ExecTensorMap, RowsNarrowerThanTheSwizzle) {
  tiled(TensorElement::kU32, {16, 8}, {4, 8});
  m_.swizzle = TensorSwizzle::k64;
  ASSERT_EQ(run(load_of("4, 0"), 128, 512), RunState::kDone) << fault_.describe();
  for (uint32_t row = 0; row < 8; ++row)
    for (uint32_t c = 0; c < 4; ++c)
      EXPECT_EQ(word(swizzled(TensorSwizzle::k64, row * 64) + c * 4), tensor_[row * 16 + 4 + c]);
}

TEST_F(ExecTensorMap, EveryHowManyElementsAndFlushedSubnormals) {
  tiled(TensorElement::kF32Ftz, {8, 9, 9}, {4, 5, 7});
  m_.steps[1] = 2;
  m_.steps[2] = 3;  // 3 x 3 rows
  ASSERT_EQ(run(load_of("2, 1, 2"), 144, 144), RunState::kDone) << fault_.describe();
  for (uint32_t k = 0; k < 36; ++k) {
    const uint32_t y = 1 + k / 4 % 3 * 2, z = 2 + k / 12 * 3;
    const uint32_t v = y < 9 && z < 9 ? tensor_[(z * 9 + y) * 8 + 2 + k % 4] : 0;
    EXPECT_EQ(word(k * 4), (v & 0x7f800000u) != 0 ? v : v & 0x80000000u) << k;
  }
}

// Columns of a 3 x 3 convolution with an edge of one pixel: images of 6 x 5 pixels of 4 channels.
TEST_F(ExecTensorMap, PixelsOfImages) {
  tiled(TensorElement::kU32, {4, 6, 5, 3}, {1, 1, 1, 1});
  m_.kind = TensorKind::kIm2col;
  m_.channels = 4;
  m_.pixels = 45;
  for (int k = 0; k < 2; ++k) m_.lower[k] = m_.upper[k] = -1;
  for (const int shift : {0, 1, 2}) {
    SCOPED_TRACE(shift);
    const std::string offsets = std::to_string(shift) + ", " + std::to_string(2 - shift);
    ASSERT_EQ(run(load_of("0, 2, 1, 0", "im2col", ", {" + offsets + "}"), 720, 720),
              RunState::kDone)
        << fault_.describe();
    int x = 2, y = 1, image = 0;
    for (uint32_t pixel = 0; pixel < 45; ++pixel) {
      const int column = x + shift, row = y + 2 - shift;
      const bool inside = column >= 0 && column < 6 && row >= 0 && row < 5 && image < 3;
      for (int c = 0; c < 4; ++c)
        ASSERT_EQ(word(pixel * 16 + static_cast<uint32_t>(c) * 4),
                  inside ? tensor_[((image * 5 + row) * 6 + column) * 4 + c] : 0)
            << pixel;
      if (++x <= 4) continue;
      x = -1;
      if (++y <= 3) continue;
      y = -1;
      ++image;
    }
  }
}

TEST_F(ExecTensorMap, StoresAndReductionsInsideOnly) {
  tiled(TensorElement::kS32, {12, 12}, {8, 8});
  const auto store = [](const std::string& op) {
    return (op.empty() ? std::string("cp.async") : "cp.reduce.async") +
           ".bulk.tensor.2d.global.shared::cta" + op +
           ".tile.bulk_group [%rd0, {8, -2}], [%r9];\ncp.async.bulk.commit_group;\n"
           "cp.async.bulk.wait_group 0;";
  };
  const std::vector<uint32_t> before(tensor_, tensor_ + 144);
  const auto expect = [&](const std::function<uint32_t(uint32_t)>& changed) {
    for (uint32_t k = 0; k < 144; ++k) {
      const bool inside = k % 12 >= 8 && k / 12 < 6;
      ASSERT_EQ(tensor_[k], inside ? changed(before[k]) : before[k]) << k;
    }
  };
  ASSERT_EQ(run(store(".add"), 0, 0), RunState::kDone) << fault_.describe();
  expect([](uint32_t v) { return v + 0xeeeeeeee; });
  ASSERT_EQ(run(store(".min"), 0, 0), RunState::kDone) << fault_.describe();
  expect([](uint32_t) { return 0xeeeeeeee; });
  ASSERT_EQ(run(store(".xor"), 0, 0), RunState::kDone) << fault_.describe();
  expect([](uint32_t) { return 0; });
  ASSERT_EQ(run(store(""), 0, 0), RunState::kDone) << fault_.describe();
  expect([](uint32_t) { return 0xeeeeeeee; });
  ASSERT_EQ(run(store(".inc"), 0, 0), RunState::kFault);
  EXPECT_EQ(fault_.kind, FaultKind::kBadTensorMap);
}

TEST_F(ExecTensorMap, SeveralBlocksOfAClusterGetTheSame) {
  cluster_ = {2, 1, 1};
  explicit_cluster_ = true;
  tiled(TensorElement::kU32, {64}, {16});
  // Each block sends its part to both, at its place.
  const std::string copy =
      "shl.b32 %r5, %r4, 4; mad.lo.u32 %r6, %r4, 128, %r9; mov.b16 %rs1, 3;\n"
      "cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%r6], [%rd0, {%r5}], [%r8], %rs1;";
  ASSERT_EQ(run(copy, 128, 256), RunState::kDone) << fault_.describe();
  for (uint32_t rank = 0; rank < 2; ++rank)
    for (uint32_t k = 0; k < 32; ++k)
      EXPECT_EQ(word(rank * 256 + k / 16 * 128 + k % 16 * 4), tensor_[k]);
}

// A map that the kernel makes of another one in shared memory, and hands itself through global
// memory.
TEST_F(ExecTensorMap, MapsThatAKernelChanges) {
  tiled(TensorElement::kU32, {16, 16}, {4, 4});
  std::vector<uint64_t> place(32);
  const uint64_t there = (share(place) + 127) / 128 * 128;
  const std::string field = "tensormap.replace.tile.";
  const std::string at = ".shared::cta.b1024.";
  std::string change = "mov.b64 %rd5, " + std::to_string(m_.address + 64) + "; mov.b64 %rd6, " +
                       std::to_string(there) + ";\n";
  for (uint32_t k = 0; k < 128; k += 8)
    change += "ld.global.u64 %rd7, [%rd0+" + std::to_string(k) + "]; st.shared.u64 [%r9+" +
              std::to_string(k) + "], %rd7;\n";
  change += field + "global_address" + at + "b64 [%r9], %rd5;\n" + field + "rank" + at +
            "b32 [%r9], 2;\n" + field + "box_dim" + at + "b32 [%r9], 1, 2;\n" + field + "box_dim" +
            at + "b32 [%r9], 2, 3;\n" + field + "global_dim" + at + "b32 [%r9], 0, 8;\n" + field +
            "global_dim" + at + "b32 [%r9], 1, 4;\n" + field + "global_dim" + at +
            "b32 [%r9], 2, 2;\n" + field + "global_stride" + at + "b64 [%r9], 0, 32;\n" + field +
            "global_stride" + at + "b64 [%r9], 1, 128;\n" + field + "element_stride" + at +
            "b32 [%r9], 2, 1;\n" + field + "elemtype" + at + "b32 [%r9], 7;\n" + field +
            "interleave_layout" + at + "b32 [%r9], 0;\n" + field + "swizzle_mode" + at +
            "b32 [%r9], 1;\n" + field + "fill_mode" + at +
            "b32 [%r9], 1;\n"
            "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync."
            "aligned [%rd6], [%r9], 128;\n"
            "fence.proxy.tensormap::generic.release.cta;\n"
            "fence.proxy.tensormap::generic.acquire.gpu [%rd6], 128;\n"
            "prefetch.tensormap [%rd6];\n"
            "cp.async.bulk.prefetch.tensor.3d.L2.global.tile [%rd6, {4, 3, 0}];\n"
            "cp.async.bulk.tensor.3d.shared::cta.global.mbarrier::complete_tx::bytes [%r9], [%rd6, "
            "{4, 3, 0}], [%r8];";
  ASSERT_EQ(run(change, 96, 192), RunState::kDone) << fault_.describe();
  for (uint32_t k = 0; k < 24; ++k) {
    const uint32_t x = 4 + k % 4, y = 3 + k / 4 % 2, z = k / 8;
    const uint32_t plain = k / 4 * 32 + k % 4 * 4;
    EXPECT_EQ(word(plain ^ (plain / 128 & 1) * 16),
              x < 8 && y < 4 && z < 2 ? tensor_[16 + z * 32 + y * 8 + x] : 0x7fffffff)
        << k;
  }
}

TEST_F(ExecTensorMap, WhatIsNoMapOrLeadsNowhereIsAFault) {
  const auto fails = [this](FaultKind kind, const std::string& copy, const auto& change) {
    tiled(TensorElement::kU32, {16, 16}, {4, 4});
    const TensorMap before = m_;
    change();
    EXPECT_EQ(run(copy, 64, 64), RunState::kFault);
    EXPECT_EQ(fault_.kind, kind) << fault_.describe();
    m_ = before;
  };
  const std::string copy = load_of("0, 0");
  const FaultKind bad = FaultKind::kBadTensorMap;
  fails(bad, copy, [&] { m_.mark = 0; });
  fails(bad, copy, [&] { m_.rank = 3; });
  fails(bad, copy, [&] { m_.rank = 200; });
  fails(bad, copy, [&] { m_.kind = TensorKind::kIm2col; });
  fails(bad, copy, [&] { m_.box[0] = 3; });
  fails(bad, copy, [&] { m_.box[1] = 0; });
  fails(bad, copy, [&] { m_.steps[1] = 0; });
  fails(bad, copy, [&] { m_.strides[0] = 8; });
  fails(bad, copy, [&] { m_.element = TensorElement::kCount; });
  fails(bad, copy, [&] { m_.interleave = 1; });
  fails(FaultKind::kMisaligned, "add.u32 %r9, %r9, 64;" + copy, [] {});
  fails(FaultKind::kOutOfBounds, copy, [&] { m_.address = 1 << 20; });
  fails(FaultKind::kOutOfBounds, copy, [&] { m_.strides[0] = 1ull << 39; });
  fails(FaultKind::kSharedBounds, copy, [&] {
    m_.box[0] = 256;
    m_.box[1] = 256;
  });
  // More rows than could ever be done, none of which is in the tensor.
  fails(FaultKind::kSharedBounds,
        "cp.async.bulk.tensor.5d.global.shared::cta.bulk_group [%rd0, {0, -300, 0, 0, 0}], [%r9];",
        [&] {
          tiled(TensorElement::kU32, {4, 4, 4, 4, 4}, {4, 256, 256, 256, 256});
        });
}

TEST_F(ExecTensorMap, TextThatIsCutOffIsRefused) {
  for (const char* text :
       {"cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes;",
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], "
        "[%rd1], "
        "[%r2];",
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1, "
        "{%r1}], [%r2];",
        "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%rd1, {%r1, %r2;",
        "cp.async.bulk.tensor.3d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%r1], "
        "[%rd1, {%r1, %r1, %r1}], [%r2];",
        "cp.async.bulk.prefetch.tensor.2d.L2.global;",
        "cp.reduce.async.bulk.tensor.1d.global.shared::cta.bulk_group [%rd1, {%r1}], [%r2];",
        "tensormap.replace.tile.box_dim.global.b1024.b32 [%rd1], 5, %r1;",
        "tensormap.replace.tile.global_stride.global.b1024.b64 [%rd1], 4, %rd1;",
        "tensormap.replace.tile.rank.global.b1024.b32;",
        "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned;",
        "fence.proxy.tensormap::generic.acquire.gpu;",
        "fence.proxy.tensormap::generic.acquire.gpu [%rd1], 64;"})
    EXPECT_FALSE(load(kernel(text))) << text;
}

}  // namespace
}  // namespace sluice::exec

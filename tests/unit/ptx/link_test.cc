// SPDX-License-Identifier: Apache-2.0
// The text that several modules are joined to. What it computes is tests/unit/softgpu/link_test.cc.
#include "kernels/ptx/images/link.h"

#include <gtest/gtest.h>

#include <string>

namespace sluice {
namespace {

constexpr char kModuleHead[] = ".version 8.0\n.target sm_80\n.address_size 64\n";
const std::string kDeclares = kModuleHead + std::string(R"(
.extern .func (.param .b32 r) twice (.param .b32 x);
.extern .func (.param .b32 r) elsewhere (.param .b32 x);
)");
std::string defines(const char* linkage) {
  return kModuleHead + std::string(linkage) +
         " .func (.param .b32 r) twice (.param .b32 x)\n{\n  ret;\n}\n";
}

// ptxas: "Function definition conflicts with '.extern' declaration".
TEST(JoinPtx, ADeclarationSaysWhatTheDefinitionSays) {
  for (const char* linkage : {".visible", ".weak"}) {
    for (const bool first : {false, true}) {
      const auto joined =
          ptx::join_ptx(first ? std::vector<std::string>{defines(linkage), kDeclares}
                              : std::vector<std::string>{kDeclares, defines(linkage)});
      ASSERT_TRUE(joined);
      const std::string head = std::string(linkage) + " .func (.param .b32 r) twice";
      const size_t declared = joined->find(head);
      ASSERT_NE(declared, std::string::npos) << *joined;
      EXPECT_NE(joined->find(head, declared + 1), std::string::npos) << *joined;
      EXPECT_EQ(joined->find(".extern .func (.param .b32 r) twice"), std::string::npos) << *joined;
      EXPECT_NE(joined->find(".extern .func (.param .b32 r) elsewhere"), std::string::npos);
    }
  }
}

// A kernel made from a template in a header is in every part that launches it.
TEST(JoinPtx, OfWeakKernelsTheFirstCountsOrTheStrongOne) {
  const auto kernel = [](const char* linkage, const char* number) {
    return kModuleHead + std::string(linkage) + " .entry k(.param .u32 p)\n{\n  .reg .u32 %r" +
           number + ";\n  ret;\n}\n";
  };
  const auto texts_of = [](const std::string& joined) {
    size_t count = 0;
    for (size_t at = joined.find(".entry k("); at != joined.npos; ++count)
      at = joined.find(".entry k(", at + 1);
    return count;
  };
  const auto weak = ptx::join_ptx({kernel(".weak", "1"), kernel(".weak", "2")});
  ASSERT_TRUE(weak);
  EXPECT_EQ(texts_of(*weak), 1u) << *weak;
  EXPECT_NE(weak->find("%r1"), std::string::npos) << *weak;
  for (const char* strong : {".visible", ""}) {
    const auto joined = ptx::join_ptx({kernel(".weak", "1"), kernel(strong, "2")});
    ASSERT_TRUE(joined);
    EXPECT_EQ(texts_of(*joined), 1u) << *joined;
    EXPECT_NE(joined->find("%r2"), std::string::npos) << *joined;
    EXPECT_FALSE(ptx::join_ptx({kernel(strong, "1"), kernel(strong, "2")}));
  }
}

// The device runtime is the driver's; what else is missing is named.
TEST(LinkPtx, NamesWhatNoPartDefines) {
  const auto missing = ptx::link_ptx({kDeclares, defines(".visible")});
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().message.find("elsewhere"), std::string::npos);
  const std::string launches =
      kModuleHead + std::string(
                        ".extern .func (.param .b32 r) __cudaCDP2LaunchDeviceV2 "
                        "(.param .b64 p, .param .b64 s);\n");
  EXPECT_TRUE(ptx::link_ptx({launches}));
  // A part that calls such a name may find it in another part: it is not compiled alone.
  const auto alone = ptx::stands_alone(launches);
  ASSERT_TRUE(alone);
  EXPECT_FALSE(*alone);
}

}  // namespace
}  // namespace sluice

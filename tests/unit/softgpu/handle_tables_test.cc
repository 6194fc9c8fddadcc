// SPDX-License-Identifier: Apache-2.0
// A handle names what it was given out for, and nothing else.
#include "mediator/softgpu/state/handle_tables.h"

#include <gtest/gtest.h>

namespace sluice::softgpu {
namespace {

template <class To, class From>
To as(From handle) {
  return reinterpret_cast<To>(handle);
}

TEST(HandleTables, AHandleIsFoundInTheTableOfItsKindOnly) {
  HandleTables tables;
  const auto array = std::make_shared<Array>();
  const CUarray handle = tables.arrays.add(array);
  tables.mipmaps.add(std::make_shared<Mipmap>());
  tables.resource_descs.add(std::make_shared<ResourceDesc>());
  EXPECT_EQ(tables.arrays.find(handle), array);
  EXPECT_EQ(tables.mipmaps.find(as<CUmipmappedArray>(handle)), nullptr);
  EXPECT_EQ(tables.resource_descs.remove(as<CUdevResourceDesc>(handle)), nullptr);
  EXPECT_EQ(tables.arrays.find(handle), array);
}

// Slots are used again; a handle of before is not found.
TEST(HandleTables, AHandleOfBeforeIsNotFound) {
  HandleTables tables;
  const CUarray before = tables.arrays.add(std::make_shared<Array>());
  EXPECT_NE(tables.arrays.remove(before), nullptr);
  const CUarray now = tables.arrays.add(std::make_shared<Array>());
  EXPECT_NE(now, before);
  EXPECT_EQ(tables.arrays.find(before), nullptr);
  EXPECT_EQ(tables.arrays.remove(before), nullptr);
  EXPECT_NE(tables.arrays.find(now), nullptr);
}

// What primary contexts do: the next one has the handle of the last.
TEST(HandleTables, AVacatedHandleIsGivenOutAgain) {
  HandleTables tables;
  const CUarray handle = tables.arrays.add(std::make_shared<Array>());
  EXPECT_NE(tables.arrays.vacate(handle), nullptr);
  EXPECT_EQ(tables.arrays.find(handle), nullptr);
  EXPECT_NE(tables.arrays.add(std::make_shared<Array>()), handle);
  const auto again = std::make_shared<Array>();
  EXPECT_EQ(tables.arrays.add_again(again), handle);
  EXPECT_EQ(tables.arrays.find(handle), again);
}

TEST(HandleTables, NoPointerIsAHandle) {
  HandleTables tables;
  tables.arrays.add(std::make_shared<Array>());
  int x = 0;
  EXPECT_EQ(tables.arrays.find(as<CUarray>(&x)), nullptr);
  EXPECT_EQ(tables.arrays.find(nullptr), nullptr);
  EXPECT_EQ(tables.arrays.find(as<CUarray>(uint64_t{0xc8} << 56)), nullptr);
}

}  // namespace
}  // namespace sluice::softgpu

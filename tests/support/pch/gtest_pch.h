// SPDX-License-Identifier: Apache-2.0
// GoogleTest, compiled once for all tests (tests/meson.build). Nothing else belongs here: every
// test includes it anyhow, so that no missing include can hide behind it.
#include <gtest/gtest.h>

// SPDX-License-Identifier: Apache-2.0
// SLUICE_ADDRESS_SANITIZER is defined where this is compiled under AddressSanitizer, GCC's or
// clang's.
#pragma once

#if defined(__SANITIZE_ADDRESS__)
#define SLUICE_ADDRESS_SANITIZER
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SLUICE_ADDRESS_SANITIZER
#endif
#endif

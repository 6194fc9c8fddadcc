// SPDX-License-Identifier: Apache-2.0
// The end of what isa.h began: the last line of each file that includes it, so that what other
// files include afterwards has the default target.
#if defined(__clang__)
#if SLUICE_EXEC_ISA != 0
#pragma clang attribute pop
#endif
#else
#pragma GCC pop_options
#endif
#undef SLUICE_EXEC_NAME

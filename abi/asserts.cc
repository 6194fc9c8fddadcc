/* SPDX-License-Identifier: Apache-2.0 */
#include "abi/asserts.c"

// SPDX-License-Identifier: Apache-2.0
// Nothing: meson precompiles a header only for a target with a source.

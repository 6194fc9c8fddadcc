/* SPDX-License-Identifier: Apache-2.0 */
/* The end word: a word of a slot's shared memory that the GPU itself writes when work has ended, so
 * that the program which waits for it need not hear of it from its worker.
 *
 * It is the first of the last SLUICE_END_WORD_BYTES of the slot's staging memory; these are for
 * nothing else. A program that waits for a stream or a context puts a number of its choice, not 0
 * and not one that it used before, into `end_word` of its sluice_synchronize. The worker may have
 * the stream write the number there, behind all that it holds; it may also leave that, and a later
 * number may overwrite it. In any case it answers the call, in its own time.
 *
 * Only the program relies on the word. Its kernels can forge it, and so make it go on too early. */
#ifndef SLUICE_ABI_END_WORD_H
#define SLUICE_ABI_END_WORD_H

#include <stdint.h>

#define SLUICE_END_WORD_BYTES 64u /* a line of the processor's cache */

/* Offset in the region of the word of a slot with this much staging memory; 0: it has none. */
static inline uint64_t sluice_end_word_offset(uint64_t staging_offset, uint64_t staging_bytes) {
  return staging_bytes < 2 * SLUICE_END_WORD_BYTES
             ? 0
             : staging_offset + staging_bytes - SLUICE_END_WORD_BYTES;
}

#endif /* SLUICE_ABI_END_WORD_H */

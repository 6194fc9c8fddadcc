/* SPDX-License-Identifier: Apache-2.0 */
/* The GPU status registers that accounting samples: the layout of NVIDIA's Ampere and Hopper
 * runlist engine status, which the software GPU publishes too (in its shared file), so that one
 * reader serves both.
 *
 * Terms
 *   engine     here: the compute engine, which one context holds at a time
 *   runlist    the list of contexts that the hardware gives an engine to in turn; it has the status
 *              registers of its engines, runlist_base being an offset from BAR0's begin
 *
 * Source: NVIDIA open-gpu-doc, manuals/ampere/ga100/dev_runlist.ref.txt
 * (NV_RUNLIST_ENGINE_STATUS0), and the open kernel modules' dev_top.h (NV_PTOP_DEVICE_INFO2). The
 * method: LoGA, section 3. Written by the GPU (software GPU: the process that holds or takes the
 * engine), read by sluiced.
 */
#ifndef SLUICE_ABI_REGISTERS_H
#define SLUICE_ABI_REGISTERS_H

#include <stdint.h>

#define SLUICE_REG_PTOP_DEVICE_INFO2 0x22800u
#define SLUICE_REG_ENGINE_STATUS0(runlist_base, i) ((runlist_base) + 0x200u + 64u * (i))
#define SLUICE_REG_ENGINE_STATUS1(runlist_base, i) ((runlist_base) + 0x204u + 64u * (i))

/* ENGINE_STATUS0
 *
 *   31   30 28 27         16 15        13 12  11      0
 *   +----+-----+------------+------------+----+--------+
 *   |busy|     | next TSGID | ctx status |    | TSGID  |
 *   +----+-----+------------+------------+----+--------+
 *
 *   TSGID       number of the channel group on the engine, that is: of the running context
 *   ctx status  enum sluice_ctx_status: which of the two numbers counts
 *   next TSGID  the channel group that is being loaded
 *   busy        the engine has work
 */
#define SLUICE_STATUS0_TSGID(v) ((v)&0xfffu)
#define SLUICE_STATUS0_CTX_STATUS(v) (((v) >> 13) & 0x7u)
#define SLUICE_STATUS0_BUSY(v) (((v) >> 31) & 0x1u)
#define SLUICE_STATUS0(tsgid, ctx, next, busy)                                                     \
  (((uint32_t)(tsgid)&0xfffu) | (((uint32_t)(ctx)&7u) << 13) | (((uint32_t)(next)&0xfffu) << 16) | \
   (((uint32_t)(busy)&1u) << 31))

enum sluice_ctx_status {
  SLUICE_CTX_INVALID = 0, /* nobody is on the engine */
  SLUICE_CTX_VALID = 1,   /* TSGID is on the engine */
  SLUICE_CTX_SAVE = 5,    /* TSGID's context is being saved */
  SLUICE_CTX_LOAD = 6,    /* NEXT_TSGID's context is being loaded */
  SLUICE_CTX_SWITCH = 7   /* TSGID is saved while NEXT_TSGID is loaded */
};

#endif /* SLUICE_ABI_REGISTERS_H */

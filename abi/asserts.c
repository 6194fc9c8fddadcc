/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes and offsets of everything that crosses a boundary. Compiled as C here and as C++ through
 * asserts.cc, so that neither language's rules can move a field unseen. */
#include <stddef.h>

#ifndef __cplusplus
#define static_assert _Static_assert
#endif

#include "abi/cuda_green.h"
#include "abi/preempt.h"
#include "abi/registers.h"
#include "abi/soft_gpu.h"
#include "abi/stub.h"

#define AT(type, field, offset) \
  static_assert(offsetof(struct type, field) == (offset), #type "." #field " has moved")
#define SIZE(type, bytes) static_assert(sizeof(struct type) == (bytes), #type " has changed size")

SIZE(sluice_window_params, SLUICE_PREEMPT_PARAMS_BYTES);
AT(sluice_window_params, pred, 24);
AT(sluice_window_params, grid_x, 40);
AT(sluice_window_params, first_x, 52);
SIZE(sluice_preempt_params, SLUICE_PREEMPT_PARAMS_BYTES);
AT(sluice_preempt_params, control, 0);
AT(sluice_preempt_params, signal, 8);
AT(sluice_preempt_params, record, 16);
AT(sluice_preempt_params, pred, 24);
AT(sluice_preempt_params, left, 32);
AT(sluice_preempt_params, grid_x, 40);
AT(sluice_preempt_params, tasks, 52);
AT(sluice_preempt_params, generation, 56);
AT(sluice_preempt_params, chunk, 60);
AT(sluice_preempt_params, flags, 62);
AT(sluice_preempt_params, magic_x, 64);
AT(sluice_preempt_params, magic_y, 68);
AT(sluice_preempt_params, shift_x1, 72);
AT(sluice_preempt_params, shift_y2, 75);
AT(sluice_preempt_params, target_clocks, 76);
AT(sluice_preempt_params, worker_base, 80);
AT(sluice_preempt_params, left_slots, 84);
AT(sluice_preempt_params, chunk_max, 88);
AT(sluice_preempt_params, tail_shift, 91);
AT(sluice_preempt_params, sm_lo, 92);
AT(sluice_preempt_params, grid, 98);
AT(sluice_preempt_params, first_tickets, 100);
AT(sluice_preempt_params, state, 104);
AT(sluice_preempt_params, state_stride, 112);
SIZE(sluice_resume_state, 24);
AT(sluice_resume_state, bytes, SLUICE_RESUME_HEADER_BYTES);

SIZE(sluice_launch_control, 512);
AT(sluice_launch_control, next_ticket, 0);
AT(sluice_launch_control, admitted_generation, 4);
AT(sluice_launch_control, evict, 128);
AT(sluice_launch_control, looked_ns, 136);
AT(sluice_launch_control, finished, 256);
AT(sluice_launch_control, exited, 260);
AT(sluice_launch_control, done, 268);
AT(sluice_launch_control, physical, 272);
AT(sluice_launch_control, left_count, 384);
AT(sluice_launch_control, left_head, 392);
AT(sluice_launch_left, slot, 1024);

SIZE(sluice_launch_record, 64);
AT(sluice_launch_record, tasks_done, 12);
AT(sluice_launch_record, launch_id, 16);
AT(sluice_launch_record, left_ns, 32);
AT(sluice_launch_record, start_ns, 40);
AT(sluice_launch_record, tasks_fetched, 56);

SIZE(sluice_host_page, 192);
AT(sluice_host_page, heartbeat_ns, 64);
AT(sluice_host_page, sms, 128);
static_assert(SLUICE_LEFT_SMS % 64 == 0, "whole words of a set of SMs");
static_assert(SLUICE_LEFT_BARRED > 0xffff, "above every quota");
static_assert((SLUICE_GRANT_OPEN | SLUICE_GRANT_CONTENDED | SLUICE_GRANT_ENDING |
               SLUICE_GRANT_RECALL | SLUICE_GRANT_PART | SLUICE_GRANT_KEEP) == 0x3full << 32,
              "the grant word's flags are apart, above the generation");
SIZE(sluice_signal_page, 256);
AT(sluice_signal_page, release_seq, 128);
SIZE(sluice_report_header, 1024);
AT(sluice_report_header, in_flight, 4);
AT(sluice_report_header, error, 64);
AT(sluice_report_header, unconfined, 72);
AT(sluice_report_header, keeps, 76);
AT(sluice_report_header, recall, 80);
AT(sluice_report_header, narrowed, 88);
AT(sluice_report_header, green_launches, 104);
AT(sluice_report_header, part_launches, 120);
AT(sluice_report_header, memory, 128);
AT(sluice_report_header, whole_launches, 128 + 8 * SLUICE_MEMORY_KINDS);
AT(sluice_report_header, in_flight_ns, 136 + 8 * SLUICE_MEMORY_KINDS);
AT(sluice_report_header, burst_ns, 144 + 8 * SLUICE_MEMORY_KINDS);
AT(sluice_report_header, flight_ns, 168 + 8 * SLUICE_MEMORY_KINDS);
AT(sluice_report_header, reserved, 176 + 8 * SLUICE_MEMORY_KINDS);
static_assert(sizeof(struct sluice_report_header) <= SLUICE_REPORT_BYTES,
              "the report header is too large");
SIZE(sluice_launch_shape, 16);
SIZE(sluice_launch_records, SLUICE_RECORDS_BYTES);
AT(sluice_launch_records, shapes, SLUICE_PINNED_RECORDS_BYTES);

static_assert(SLUICE_STATUS0_TSGID(SLUICE_STATUS0(0x123, 1, 0x456, 1)) == 0x123, "TSGID");
static_assert(SLUICE_STATUS0_BUSY(SLUICE_STATUS0(0x123, 1, 0x456, 1)) == 1, "BUSY");

#include "abi/channel.h"
#include "abi/wire.h"

SIZE(sluice_ring, 192);
AT(sluice_ring, tail, 64);
AT(sluice_ring, armed, 72);
AT(sluice_ring, space_armed, 128);
AT(sluice_channel_header, agent_epoch, 512);
AT(sluice_channel_header, oldest, 248);
SIZE(sluice_channel_header, 544);
SIZE(sluice_control, 384);
SIZE(sluice_control_message, 128);
AT(sluice_slot_header, submit, 256);
AT(sluice_slot_header, hold, 256 + 2 * 192);
SIZE(sluice_slot_header, 256 + 2 * 192 + 64);
static_assert(SLUICE_SUBMIT_DATA + SLUICE_SUBMIT_RING_BYTES <= SLUICE_COMPLETE_DATA &&
                  SLUICE_COMPLETE_DATA + SLUICE_COMPLETE_RING_BYTES <= SLUICE_SLOT_STRIDE,
              "the rings of a slot overlap");
static_assert(SLUICE_CONTROL_TO_AGENT_DATA + SLUICE_CONTROL_RING_BYTES <= SLUICE_SLOT_OFFSET,
              "the control rings reach into slot 0");
SIZE(sluice_join, 104);
SIZE(sluice_joined, 256);
SIZE(sluice_record, 32);
SIZE(sluice_completion, 32);
SIZE(sluice_launch, 56);
SIZE(sluice_copy, 72);
SIZE(sluice_copy_box_end, 56);
SIZE(sluice_copy_box, 152);
SIZE(sluice_clusters, 48);
SIZE(sluice_green, 64);
SIZE(sluice_green_reply, 48);
SIZE(sluice_memset, 56);
SIZE(sluice_printed, 8);
SIZE(sluice_stream_value64, 32);
SIZE(sluice_function_reply, 80);

SIZE(CUdevResource_st, 144);
AT(CUdevResource_st, sm, 96);
SIZE(sluice_soft_info, 80);
AT(sluice_soft_info, fault_stall_us, 68);
SIZE(sluice_soft_fault, 32);
SIZE(sluice_soft_faults, 3104);
AT(sluice_soft_info, sm_group, 64);
AT(sluice_soft_info, memory_bytes, 32);
SIZE(sluice_soft_channel, 176);
AT(sluice_soft_channel, sm_set, 24);
AT(sluice_soft_channel, engine_ns, 56);
AT(sluice_soft_channel, preempt_count, 88);
AT(sluice_soft_channel, sms_used, 144);
SIZE(sluice_switch_record, 32);
AT(sluice_switch_record, tag, 8);
AT(sluice_switch_record, seq, 10);
AT(sluice_switch_record, cid, 12);
AT(sluice_switch_record, time_ns, 24);

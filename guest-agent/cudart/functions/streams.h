// SPDX-License-Identifier: Apache-2.0
// Streams, events, host functions. One row each; functions.h says what the columns mean.
#pragma once

// clang-format off
#define SLUICE_CUDART_STREAMS(F, S, D, T, A, P, H) \
  F(cudaEventCreate, kContext, (cudaEvent_t* event), (event)) \
  D(cudaEventCreateWithFlags, kContext, (cudaEvent_t* event, unsigned int flags), (event, \
    flags), cuEventCreate) \
  D(cudaEventDestroy, kContext, (cudaEvent_t event), (event), cuEventDestroy_v2) \
  F(cudaEventElapsedTime, kContext, (float* ms, cudaEvent_t start, cudaEvent_t end), (ms, start, \
    end)) \
  D(cudaEventQuery, kContext, (cudaEvent_t event), (event), cuEventQuery) \
  T(cudaEventRecord, ptsz, kContext, (cudaEvent_t event, cudaStream_t stream), (event, stream), \
    cuEventRecord) \
  T(cudaEventRecordWithFlags, ptsz, kContext, (cudaEvent_t event, cudaStream_t stream, unsigned \
    int flags), (event, stream, flags), cuEventRecordWithFlags) \
  D(cudaEventSynchronize, kContext, (cudaEvent_t event), (event), cuEventSynchronize) \
  T(cudaLaunchHostFunc, ptsz, kContext, (cudaStream_t stream, cudaHostFn_t fn, void* user_data), \
    (stream, fn, user_data), cuLaunchHostFunc) \
  T(cudaStreamAddCallback, ptsz, kContext, (cudaStream_t stream, cudaStreamCallback_t callback, \
    void* user_data, unsigned int flags), (stream, callback, user_data, flags), \
    cuStreamAddCallback) \
  T(cudaStreamAttachMemAsync, ptsz, kContext, (cudaStream_t stream, void* dev_ptr, size_t \
    length, unsigned int flags), (stream, dev_ptr, length, flags), cuStreamAttachMemAsync) \
  T(cudaStreamCopyAttributes, ptsz, kContext, (cudaStream_t dst, cudaStream_t src), (dst, src), \
    cuStreamCopyAttributes) \
  F(cudaStreamCreate, kContext, (cudaStream_t* stream), (stream)) \
  D(cudaStreamCreateWithFlags, kContext, (cudaStream_t* stream, unsigned int flags), (stream, \
    flags), cuStreamCreate) \
  D(cudaStreamCreateWithPriority, kContext, (cudaStream_t* stream, unsigned int flags, int \
    priority), (stream, flags, priority), cuStreamCreateWithPriority) \
  D(cudaStreamDestroy, kContext, (cudaStream_t stream), (stream), cuStreamDestroy_v2) \
  S(cudaStreamGetAttribute, ptsz, kContext, (cudaStream_t h_stream, cudaLaunchAttributeID attr, \
    cudaLaunchAttributeValue* value_out), (mode, h_stream, attr, value_out)) \
  T(cudaStreamGetDevice, ptsz, kContext, (cudaStream_t h_stream, int* device), (h_stream, \
    device), cuStreamGetDevice) \
  T(cudaStreamGetFlags, ptsz, kContext, (cudaStream_t h_stream, unsigned int* flags), (h_stream, \
    flags), cuStreamGetFlags) \
  T(cudaStreamGetId, ptsz, kContext, (cudaStream_t h_stream, unsigned long long* stream_id), \
    (h_stream, stream_id), cuStreamGetId) \
  T(cudaStreamGetPriority, ptsz, kContext, (cudaStream_t h_stream, int* priority), (h_stream, \
    priority), cuStreamGetPriority) \
  T(cudaStreamIsCapturing, ptsz, kContext, (cudaStream_t stream, cudaStreamCaptureStatus* \
    capture_status), (stream, capture_status), cuStreamIsCapturing) \
  T(cudaStreamQuery, ptsz, kContext, (cudaStream_t stream), (stream), cuStreamQuery) \
  S(cudaStreamSetAttribute, ptsz, kContext, (cudaStream_t h_stream, cudaLaunchAttributeID attr, \
    const cudaLaunchAttributeValue* value), (mode, h_stream, attr, value)) \
  T(cudaStreamSynchronize, ptsz, kContext, (cudaStream_t stream), (stream), cuStreamSynchronize) \
  T(cudaStreamWaitEvent, ptsz, kContext, (cudaStream_t stream, cudaEvent_t event, unsigned int \
    flags), (stream, event, flags), cuStreamWaitEvent)
// clang-format on

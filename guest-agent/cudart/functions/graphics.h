// SPDX-License-Identifier: Apache-2.0
// Interoperation with OpenGL, EGL and VDPAU: symbols only, whatever their parameters are. One row
// each; functions.h says what the columns mean.
#pragma once

// clang-format off
#define SLUICE_CUDART_GRAPHICS(F, S, D, T, A, P, H) \
  A(cudaEGLStreamConsumerAcquireFrame, (void)) \
  A(cudaEGLStreamConsumerConnect, (void)) \
  A(cudaEGLStreamConsumerConnectWithFlags, (void)) \
  A(cudaEGLStreamConsumerDisconnect, (void)) \
  A(cudaEGLStreamConsumerReleaseFrame, (void)) \
  A(cudaEGLStreamProducerConnect, (void)) \
  A(cudaEGLStreamProducerDisconnect, (void)) \
  A(cudaEGLStreamProducerPresentFrame, (void)) \
  A(cudaEGLStreamProducerReturnFrame, (void)) \
  A(cudaEventCreateFromEGLSync, (void)) \
  A(cudaGLGetDevices, (void)) \
  A(cudaGLMapBufferObject, (void)) \
  A(cudaGLMapBufferObjectAsync, (void)) \
  A(cudaGLRegisterBufferObject, (void)) \
  A(cudaGLSetBufferObjectMapFlags, (void)) \
  A(cudaGLSetGLDevice, (void)) \
  A(cudaGLUnmapBufferObject, (void)) \
  A(cudaGLUnmapBufferObjectAsync, (void)) \
  A(cudaGLUnregisterBufferObject, (void)) \
  A(cudaGraphicsEGLRegisterImage, (void)) \
  A(cudaGraphicsGLRegisterBuffer, (void)) \
  A(cudaGraphicsGLRegisterImage, (void)) \
  A(cudaGraphicsResourceGetMappedEglFrame, (void)) \
  A(cudaGraphicsVDPAURegisterOutputSurface, (void)) \
  A(cudaGraphicsVDPAURegisterVideoSurface, (void)) \
  A(cudaVDPAUGetDevice, (void)) \
  A(cudaVDPAUSetVDPAUDevice, (void))
// clang-format on

/* SPDX-License-Identifier: Apache-2.0 */
/* The errors of the CUDA runtime API: names and numbers are CUDA's, the sentences that
 * cudaGetErrorString answers are ours.
 *
 * Users: libcudart on the host; the software GPU, whose kernels ask as well. Declares only. C and
 * C++.
 */
#ifndef SLUICE_ABI_CUDA_RUNTIME_ERRORS_H
#define SLUICE_ABI_CUDA_RUNTIME_ERRORS_H

// clang-format off
// X(name, number, sentence)
#define SLUICE_CUDA_RUNTIME_ERRORS(X) \
  X(cudaSuccess, 0, "success") \
  X(cudaErrorInvalidValue, 1, "a parameter has a value that the call does not take") \
  X(cudaErrorMemoryAllocation, 2, "not enough device memory") \
  X(cudaErrorInitializationError, 3, "CUDA could not be started") \
  X(cudaErrorCudartUnloading, 4, "the driver is being unloaded") \
  X(cudaErrorProfilerDisabled, 5, "the profiler is off") \
  X(cudaErrorProfilerNotInitialized, 6, "the profiler has not been set up") \
  X(cudaErrorProfilerAlreadyStarted, 7, "the profiler runs already") \
  X(cudaErrorProfilerAlreadyStopped, 8, "the profiler is stopped already") \
  X(cudaErrorInvalidConfiguration, 9, "a launch has a grid or block that the GPU cannot have") \
  X(cudaErrorInvalidPitchValue, 12, "a pitch is too small or too large") \
  X(cudaErrorInvalidSymbol, 13, "no variable of this name or address") \
  X(cudaErrorInvalidHostPointer, 16, "not an address in host memory") \
  X(cudaErrorInvalidDevicePointer, 17, "not an address in device memory") \
  X(cudaErrorInvalidTexture, 18, "no such texture") \
  X(cudaErrorInvalidTextureBinding, 19, "the texture is bound to nothing usable") \
  X(cudaErrorInvalidChannelDescriptor, 20, "a channel format that cannot be") \
  X(cudaErrorInvalidMemcpyDirection, 21, "a direction of copying that does not exist") \
  X(cudaErrorAddressOfConstant, 22, "constant memory has no such address") \
  X(cudaErrorTextureFetchFailed, 23, "a texture could not be read") \
  X(cudaErrorTextureNotBound, 24, "the texture is not bound") \
  X(cudaErrorSynchronizationError, 25, "a wait failed") \
  X(cudaErrorInvalidFilterSetting, 26, "a filter that does not fit the format") \
  X(cudaErrorInvalidNormSetting, 27, "normalised reading does not fit the format") \
  X(cudaErrorMixedDeviceExecution, 28, "host and device code are mixed") \
  X(cudaErrorNotYetImplemented, 31, "not there yet") \
  X(cudaErrorMemoryValueTooLarge, 32, "the value is too large for memory") \
  X(cudaErrorStubLibrary, 34, "the loaded library is a stub without a driver") \
  X(cudaErrorInsufficientDriver, 35, "the driver is missing or too old") \
  X(cudaErrorCallRequiresNewerDriver, 36, "the call needs a newer driver") \
  X(cudaErrorInvalidSurface, 37, "no such surface") \
  X(cudaErrorDuplicateVariableName, 43, "two variables have this name") \
  X(cudaErrorDuplicateTextureName, 44, "two textures have this name") \
  X(cudaErrorDuplicateSurfaceName, 45, "two surfaces have this name") \
  X(cudaErrorDevicesUnavailable, 46, "another process holds the device") \
  X(cudaErrorIncompatibleDriverContext, 49, "the current context cannot be used by the runtime") \
  X(cudaErrorMissingConfiguration, 52, "no launch has been configured") \
  X(cudaErrorPriorLaunchFailure, 53, "an earlier launch failed") \
  X(cudaErrorLaunchMaxDepthExceeded, 65, "kernels launch kernels too deeply") \
  X(cudaErrorLaunchFileScopedTex, 66, "such textures cannot be used in a kernel's kernel") \
  X(cudaErrorLaunchFileScopedSurf, 67, "such surfaces cannot be used in a kernel's kernel") \
  X(cudaErrorSyncDepthExceeded, 68, "waits in kernels are nested too deeply") \
  X(cudaErrorLaunchPendingCountExceeded, 69, "too many launches of kernels wait") \
  X(cudaErrorInvalidDeviceFunction, 98, "no kernel of this name or address, or not for this GPU") \
  X(cudaErrorNoDevice, 100, "no GPU was found") \
  X(cudaErrorInvalidDevice, 101, "there is no device of this number") \
  X(cudaErrorDeviceNotLicensed, 102, "the device has no licence for this") \
  X(cudaErrorSoftwareValidityNotEstablished, 103, "runtime and driver do not fit") \
  X(cudaErrorStartupFailure, 127, "the runtime failed to start") \
  X(cudaErrorInvalidKernelImage, 200, "the module is no image that this GPU can load") \
  X(cudaErrorDeviceUninitialized, 201, "the device has no context, or an unusable one") \
  X(cudaErrorMapBufferObjectFailed, 205, "the resource could not be mapped") \
  X(cudaErrorUnmapBufferObjectFailed, 206, "the resource could not be unmapped") \
  X(cudaErrorArrayIsMapped, 207, "the array is still mapped") \
  X(cudaErrorAlreadyMapped, 208, "the resource has been mapped before") \
  X(cudaErrorNoKernelImageForDevice, 209, "the module has no code for this GPU") \
  X(cudaErrorAlreadyAcquired, 210, "somebody has acquired the resource before") \
  X(cudaErrorNotMapped, 211, "the resource has not been mapped") \
  X(cudaErrorNotMappedAsArray, 212, "the resource is mapped, but not as an array") \
  X(cudaErrorNotMappedAsPointer, 213, "the resource is mapped, but not as a pointer") \
  X(cudaErrorECCUncorrectable, 214, "device memory has an error that ECC could not repair") \
  X(cudaErrorUnsupportedLimit, 215, "this device has no such limit") \
  X(cudaErrorDeviceAlreadyInUse, 216, "another thread uses the context") \
  X(cudaErrorPeerAccessUnsupported, 217, "these two devices cannot reach each other's memory") \
  X(cudaErrorInvalidPtx, 218, "the PTX text could not be compiled") \
  X(cudaErrorInvalidGraphicsContext, 219, "the graphics context is of no use here") \
  X(cudaErrorNvlinkUncorrectable, 220, "NVLink had an error that it could not repair") \
  X(cudaErrorJitCompilerNotFound, 221, "the library that compiles PTX is missing") \
  X(cudaErrorUnsupportedPtxVersion, 222, "the PTX is of a newer version than the driver") \
  X(cudaErrorJitCompilationDisabled, 223, "compiling PTX has been switched off") \
  X(cudaErrorUnsupportedExecAffinity, 224, "this device cannot confine contexts to SMs") \
  X(cudaErrorUnsupportedDevSideSync, 225, "kernels cannot wait for kernels") \
  X(cudaErrorContained, 226, "a fault was confined to this context") \
  X(cudaErrorInvalidSource, 300, "the source of the kernel is not valid") \
  X(cudaErrorFileNotFound, 301, "there is no such file") \
  X(cudaErrorSharedObjectSymbolNotFound, 302, "a symbol of a shared library was not found") \
  X(cudaErrorSharedObjectInitFailed, 303, "a shared library could not start") \
  X(cudaErrorOperatingSystem, 304, "the operating system refused a call") \
  X(cudaErrorInvalidResourceHandle, 400, "there is no object of this handle") \
  X(cudaErrorIllegalState, 401, "not possible in the state that the object is in") \
  X(cudaErrorLossyQuery, 402, "the answer would lose something") \
  X(cudaErrorSymbolNotFound, 500, "there is nothing of this name") \
  X(cudaErrorNotReady, 600, "the work is not done yet") \
  X(cudaErrorIllegalAddress, 700, "a kernel used an address that it has no right to") \
  X(cudaErrorLaunchOutOfResources, 701, "a block would take too many registers or memory") \
  X(cudaErrorLaunchTimeout, 702, "a kernel ran longer than the device allows") \
  X(cudaErrorLaunchIncompatibleTexturing, 703, "the launch mixes kinds of textures") \
  X(cudaErrorPeerAccessAlreadyEnabled, 704, "access to this peer is on already") \
  X(cudaErrorPeerAccessNotEnabled, 705, "access to this peer is off") \
  X(cudaErrorSetOnActiveProcess, 708, "the primary context is in use") \
  X(cudaErrorContextIsDestroyed, 709, "the context has been destroyed") \
  X(cudaErrorAssert, 710, "an assertion in a kernel failed") \
  X(cudaErrorTooManyPeers, 711, "no room for another peer") \
  X(cudaErrorHostMemoryAlreadyRegistered, 712, "this host memory is registered already") \
  X(cudaErrorHostMemoryNotRegistered, 713, "this host memory has not been registered") \
  X(cudaErrorHardwareStackError, 714, "a kernel's call stack overflowed or was damaged") \
  X(cudaErrorIllegalInstruction, 715, "a kernel ran an instruction that does not exist") \
  X(cudaErrorMisalignedAddress, 716, "a kernel used an address of the wrong alignment") \
  X(cudaErrorInvalidAddressSpace, 717, "the address is of another memory space") \
  X(cudaErrorInvalidPc, 718, "a kernel jumped to where no code is") \
  X(cudaErrorLaunchFailure, 719, "a kernel failed, and the reason is not known") \
  X(cudaErrorCooperativeLaunchTooLarge, 720, "the blocks do not fit on the GPU at once") \
  X(cudaErrorTensorMemoryLeak, 721, "a kernel kept tensor memory") \
  X(cudaErrorNotPermitted, 800, "the caller has no right to do this") \
  X(cudaErrorNotSupported, 801, "this driver or device cannot do this") \
  X(cudaErrorSystemNotReady, 802, "the system is still starting") \
  X(cudaErrorSystemDriverMismatch, 803, "driver and library are of different versions") \
  X(cudaErrorCompatNotSupportedOnDevice, 804, "this device has no compatibility mode") \
  X(cudaErrorMpsConnectionFailed, 805, "the MPS server could not be reached") \
  X(cudaErrorMpsRpcFailure, 806, "a call to the MPS server failed") \
  X(cudaErrorMpsServerNotReady, 807, "the MPS server takes no clients yet") \
  X(cudaErrorMpsMaxClientsReached, 808, "the MPS server has as many clients as it can have") \
  X(cudaErrorMpsMaxConnectionsReached, 809, "the MPS server has no connection left") \
  X(cudaErrorMpsClientTerminated, 810, "the MPS server ended this client") \
  X(cudaErrorCdpNotSupported, 811, "kernels cannot launch kernels here") \
  X(cudaErrorCdpVersionMismatch, 812, "host and device differ in how kernels launch") \
  X(cudaErrorStreamCaptureUnsupported, 900, "not possible while the stream records") \
  X(cudaErrorStreamCaptureInvalidated, 901, "the recording of the stream has become invalid") \
  X(cudaErrorStreamCaptureMerge, 902, "two recordings would become one") \
  X(cudaErrorStreamCaptureUnmatched, 903, "the recording did not begin in this stream") \
  X(cudaErrorStreamCaptureUnjoined, 904, "recorded work never rejoined its stream") \
  X(cudaErrorStreamCaptureIsolation, 905, "the recording would depend on work outside of it") \
  X(cudaErrorStreamCaptureImplicit, 906, "the recording would depend on the default stream") \
  X(cudaErrorCapturedEvent, 907, "the event belongs to a recording") \
  X(cudaErrorStreamCaptureWrongThread, 908, "another thread began the recording") \
  X(cudaErrorTimeout, 909, "the time to wait is over") \
  X(cudaErrorGraphExecUpdateFailure, 910, "the graph differs too much to be updated") \
  X(cudaErrorExternalDevice, 911, "a device beside the GPU reported an error") \
  X(cudaErrorInvalidClusterSize, 912, "a cluster cannot have this size") \
  X(cudaErrorFunctionNotLoaded, 913, "the function has not been loaded") \
  X(cudaErrorInvalidResourceType, 914, "a resource of this kind does not fit here") \
  X(cudaErrorInvalidResourceConfiguration, 915, "the resource's set-up does not fit") \
  X(cudaErrorUnknown, 999, "an error without a name")
// clang-format on

/* What both say of a number that is none of them. */
#define SLUICE_CUDA_RUNTIME_NO_ERROR "unrecognized error code"

#endif

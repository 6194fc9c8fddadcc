// SPDX-License-Identifier: Apache-2.0
// HandleTables: everything that the API gives out a handle of, a table for each kind. Part of the
// library's state; each table locks for itself. A handle is found in the table of its kind only.
#pragma once

#include "mediator/softgpu/memory/textures.h"
#include "mediator/softgpu/state/handles.h"
#include "mediator/softgpu/state/objects.h"

namespace sluice::softgpu {

struct HandleTables {
  HandleTable<Context, CUcontext, HandleType::kContext> contexts;
  HandleTable<Module, CUmodule, HandleType::kModule> modules;
  HandleTable<Function, CUfunction, HandleType::kFunction> functions;
  HandleTable<Stream, CUstream, HandleType::kStream> streams;
  HandleTable<Event, CUevent, HandleType::kEvent> events;
  HandleTable<Library, CUlibrary, HandleType::kLibrary> libraries;
  HandleTable<Kernel, CUkernel, HandleType::kKernel> kernels;
  HandleTable<Array, CUarray, HandleType::kArray> arrays;
  HandleTable<Mipmap, CUmipmappedArray, HandleType::kMipmap> mipmaps;
  HandleTable<GreenContext, CUgreenCtx, HandleType::kGreenContext> greens;
  HandleTable<GreenContext, CUcontext, HandleType::kGreenView> green_views;
  HandleTable<ResourceDesc, CUdevResourceDesc, HandleType::kResourceDesc> resource_descs;
};

}  // namespace sluice::softgpu

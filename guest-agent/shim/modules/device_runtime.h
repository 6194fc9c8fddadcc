// SPDX-License-Identifier: Apache-2.0
// What kernels call of CUDA's device runtime library (libcudadevrt), which a program otherwise
// links to its PTX. Pure; any thread.
#pragma once

#include <string>
#include <string_view>

namespace sluice::guest {

// Gives a module's external declaration of cudaGraphSetConditional a body: it stores the value
// where the handle says (graph_conditional.h). Launches of graphs from the GPU are not offered; the
// log says so by name, and the module does not load, as one that refers to what is not there.
// Launches of kernels are the driver's: the software GPU has them, NVIDIA's refuses the text and
// takes machine code. Text that is no PTX stays as it is. True: it has got the body. Machine code
// of the same module has NVIDIA's, which knows nothing of our handles.
bool add_device_runtime(std::string* ptx);
// Whether a module that calls this function is changed or refused by that.
bool is_of_device_runtime(std::string_view function);

}  // namespace sluice::guest

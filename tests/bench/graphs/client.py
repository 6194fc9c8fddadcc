#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""CUDA graphs as NVIDIA's own Python packages make them (cuda.bindings, cuda.core): prints what
came of it.

usage: client.py [--times]

Run it natively and as a client of a vGPU (SLUICE_SOCKET, LD_LIBRARY_PATH: README.md of this
folder's parent); the lines have to be the same. --times adds what a launch of a graph of 20 small
kernels takes, per kernel, on stderr.
"""
import sys
import time

from cuda.bindings import driver as cu

N = 1 << 16
SOURCE = r"""
extern "C" __global__ void step(unsigned* p, unsigned n, unsigned times, unsigned plus) {
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    p[i] = p[i] * times + plus;
}
"""


def ok(answer):
    if answer[0] != cu.CUresult.CUDA_SUCCESS:
        raise RuntimeError(f"{answer[0].name}")
    return answer[1] if len(answer) == 2 else answer[1:]


def ptx():
    from cuda.bindings import nvrtc
    program = nvrtc.nvrtcCreateProgram(SOURCE.encode(), b"step.cu", 0, [], [])[1]
    err, = nvrtc.nvrtcCompileProgram(program, 1, [b"--gpu-architecture=compute_90"])
    assert err == nvrtc.nvrtcResult.NVRTC_SUCCESS, err
    text = b" " * nvrtc.nvrtcGetPTXSize(program)[1]
    nvrtc.nvrtcGetPTX(program, text)
    return text


def values(pointer):
    import ctypes
    got = (ctypes.c_uint32 * N)()
    ok(cu.cuMemcpyDtoH(got, pointer, 4 * N))
    total = 0
    for v in got:
        total = (total * 31 + v) & 0xffffffff
    return got[0], got[N - 1], total


def by_hand(context, function, pointer, stream, times):
    """A diamond with a fill before it and a copy behind it, changed in its executable."""
    import ctypes
    graph = ok(cu.cuGraphCreate(0))

    def kernel(times_by, plus, nodes):
        p = cu.CUDA_KERNEL_NODE_PARAMS()
        p.func, p.gridDimX, p.gridDimY, p.gridDimZ = function, 64, 1, 1
        p.blockDimX, p.blockDimY, p.blockDimZ, p.sharedMemBytes = 128, 1, 1, 0
        p.kernelParams = ((int(pointer), N, times_by, plus),
                          (ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_uint32))
        return p, (ok(cu.cuGraphAddKernelNode(graph, nodes, len(nodes), p)) if nodes is not None
                   else None)

    fill = cu.CUDA_MEMSET_NODE_PARAMS()
    fill.dst, fill.value, fill.elementSize = pointer, 1, 4
    fill.width, fill.height, fill.pitch = N, 1, 0
    first = ok(cu.cuGraphAddMemsetNode(graph, [], 0, fill, context))
    _, last = kernel(3, 1, [first])
    nodes = [last]
    for i in range(18):
        _, last = kernel(2 + i, i, [last])
        nodes.append(last)
    exec_ = ok(cu.cuGraphInstantiate(graph, 0))
    ok(cu.cuGraphLaunch(exec_, stream))
    ok(cu.cuStreamSynchronize(stream))
    print("by hand", *values(pointer))
    changed, _ = kernel(1000, 7, None)
    ok(cu.cuGraphExecKernelNodeSetParams(exec_, nodes[0], changed))
    ok(cu.cuGraphLaunch(exec_, stream))
    ok(cu.cuStreamSynchronize(stream))
    print("changed", *values(pointer))
    if times:
        rounds = []
        for _ in range(7):
            begin = time.perf_counter()
            for _ in range(100):
                ok(cu.cuGraphLaunch(exec_, stream))
            ok(cu.cuStreamSynchronize(stream))
            rounds.append((time.perf_counter() - begin) / 100 / 20 * 1e6)
        print(f"us a node: {sorted(rounds)[3]:.2f}", file=sys.stderr)
    ok(cu.cuGraphExecDestroy(exec_))
    ok(cu.cuGraphDestroy(graph))


def by_core(pointer, stream):
    """cuda.core's graph builder: a capture with forks."""
    from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch
    import numpy as np
    device = Device()
    device.set_current()
    own = device.create_stream()
    kernel = Program(SOURCE, code_type="c++",
                     options=ProgramOptions(arch="sm_90")).compile("ptx").get_kernel("step")
    config = LaunchConfig(grid=64, block=128)
    builder = device.create_graph_builder().begin_building()
    half = N // 2

    def step(to, part, times_by, plus):
        launch(to, config, kernel, int(pointer) + 4 * half * part, np.uint32(half),
               np.uint32(times_by), np.uint32(plus))
    step(builder, 0, 3, 1)
    left, right = builder.split(2)
    step(left, 0, 5, 2)
    step(right, 1, 7, 3)
    builder = type(builder).join(left, right)
    step(builder, 0, 11, 4)
    graph = builder.end_building().complete()
    ok(cu.cuMemsetD32(pointer, 1, N))
    for _ in range(3):
        graph.launch(own)
    own.sync()
    print("cuda.core", *values(pointer))


def main():
    ok(cu.cuInit(0))
    context = ok(cu.cuDevicePrimaryCtxRetain(ok(cu.cuDeviceGet(0))))
    ok(cu.cuCtxSetCurrent(context))
    module = ok(cu.cuModuleLoadData(ptx()))
    function = ok(cu.cuModuleGetFunction(module, b"step"))
    pointer = ok(cu.cuMemAlloc(4 * N))
    stream = ok(cu.cuStreamCreate(1))
    by_hand(context, function, pointer, stream, "--times" in sys.argv)
    by_core(pointer, stream)


if __name__ == "__main__":
    main()

// SPDX-License-Identifier: Apache-2.0
// Matrix instructions: X(name, (handler)); see ops_int.h. They need every live lane of the warp at
// once: a handler that is called with fewer says kControl, and the lanes wait for one another as in
// any warp-wide operation (collective.cc). Inst::aux: the member mask (all lanes), then registers.
#pragma once

#define SLUICE_EXEC_TENSOR_OPS(X) X(mma, (multiply))
#define SLUICE_EXEC_WARPGROUP_OPS(X) X(wgmma, (multiply_warpgroup))
#define SLUICE_EXEC_MATRIX_MOVE_OPS(X) \
  X(ldmatrix, (load_matrices))         \
  X(stmatrix, (store_matrices))        \
  X(movmatrix, (transpose_matrix)) X(wmmaload, (load_fragment)) X(wmmastore, (store_fragment))

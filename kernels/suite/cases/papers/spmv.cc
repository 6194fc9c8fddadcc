// SPDX-License-Identifier: Apache-2.0
// The host side of spmv.cu: rows of very different lengths; both kernels.
#include "kernels/suite/cases/case_builder.h"
#include "kernels/suite/catalog/catalog_rows.h"
#include "kernels/suite/spmv.ptx.h"

namespace sluice::suite {

Case case_spmv(const CaseOptions& options) {
  const std::uint32_t rows = scaled(options, 600);
  Generator random(options.seed);
  std::vector<std::uint32_t> begin = {0}, columns;
  for (std::uint32_t row = 0; row < rows; ++row) {
    const std::uint64_t length = random.next() % (row % 16 == 0 ? 150 : 24);
    for (std::uint64_t i = 0; i < length; ++i)
      columns.push_back(static_cast<std::uint32_t>(random.next() % rows));
    begin.push_back(static_cast<std::uint32_t>(columns.size()));
  }
  const auto values = uniform_floats(columns.size(), options.seed + 1, -1, 1);
  const auto vector = uniform_floats(rows, options.seed + 2, -1, 1);
  CaseBuilder build("spmv", kSpmvPtx);
  const Pointer d_values = build.input("values", values),
                d_columns = build.input("columns", columns);
  const Pointer d_begin = build.input("begin", begin), d_vector = build.input("vector", vector);
  const Pointer d_scalar = build.output<float>("out_scalar", rows);
  const Pointer d_warp = build.output<float>("out_vector", rows);
  build.launch("spmv_scalar", {blocks(rows, 128), 1, 1}, {128, 1, 1}, 0, d_scalar, d_values,
               d_columns, d_begin, d_vector, rows);
  build.launch("spmv_vector", {blocks(rows, 4), 1, 1}, {128, 1, 1}, 0, d_warp, d_values, d_columns,
               d_begin, d_vector, rows);
  const auto product = [=] {
    std::vector<float> out;
    for (std::size_t row = 0; row < rows; ++row) {
      double sum = 0;
      for (std::uint32_t i = begin[row]; i < begin[row + 1]; ++i)
        sum += double{values[i]} * vector[columns[i]];
      out.push_back(static_cast<float>(sum));
    }
    return out;
  };
  build.expect<float>(d_scalar, 1e-5, product);
  build.expect<float>(d_warp, 1e-5, product);
  return build.take();
}

}  // namespace sluice::suite

# SPDX-License-Identifier: Apache-2.0
"""The experiments. Each is an object with

  NAME, TITLE
  ways(bench)             the ways in which it is measured, in order
  run(host, bench)        measures in one way: a list of (way or way/variant, what was measured)
  rows(measured, results) adds rows; `measured`: way -> what was measured
"""
from gpu_bench.sections import (alone, chains, guests, handover, lag, light, pairs, papers, shares,
                                spatial, tenants)

SECTIONS = [light, chains, handover, shares, lag, tenants, pairs, papers, spatial, guests, alone]

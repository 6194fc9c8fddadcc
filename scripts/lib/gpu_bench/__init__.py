# SPDX-License-Identifier: Apache-2.0
"""What scripts/gpu-bench is made of.

  tenant.py     a program that shares the GPU (tests/bench/tenant), led over its standard input
  ways.py       the ways to share a GPU: the driver's own, and Sluice's
  sections/     the experiments, one file each
  results.py    rows with their goals; JSON and a table of them
  plots.py      pictures, as SVG, from the JSON
"""

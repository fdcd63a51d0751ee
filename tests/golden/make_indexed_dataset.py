#!/usr/bin/env python3
"""Makes megatron-{a,b,merged}.{bin,idx}: token files written by Megatron-core's own IndexedDatasetBuilder, which test_indexed_dataset.cpp reads and writes again.

    pip download --no-deps megatron-core && unzip megatron_core-*.whl      (run with 0.16.1, numpy 2.4.6, Python 3.11; PyTorch is not needed)
    tests/golden/make_indexed_dataset.py FOLDER/megatron
"""
import os, sys

import numpy

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(here))
from compare_indexed_dataset import load_megatron

# a: a sequence a document, as Clover writes; b: documents of several sequences, and one without any.
a = [[[104, 105, 256]], [[0, 255, 65498, 256]], [[256]]]
b = [[[1, 2], [3]], [], [[4, 5, 6], [], [7]]]


def build(megatron, name, documents=(), parts=()):
    builder = megatron.IndexedDatasetBuilder(f"{here}/megatron-{name}.bin", dtype=numpy.uint16)
    for document in documents: builder.add_document([token for sequence in document for token in sequence], [len(sequence) for sequence in document])
    for part in parts: builder.add_index(f"{here}/megatron-{part}")
    builder.finalize(f"{here}/megatron-{name}.idx")


if __name__ == "__main__":
    megatron = load_megatron(sys.argv[1])
    build(megatron, "a", a)
    build(megatron, "b", b)
    build(megatron, "merged", parts="ab")

#!/usr/bin/env python3
"""Compares Clover's token files with Megatron-core's own code: the same .bin/.idx from the same text, byte for byte; merged
files; each read by the other.

    pip download --no-deps megatron-core && unzip megatron_core-*.whl      (run with 0.16.1, numpy 2.4.6, Python 3.11; PyTorch is not needed)
    tests/compare_indexed_dataset.py ./clover FOLDER/megatron

Ends with exit code 1 if anything differs.
"""
import importlib.util, json, os, random, subprocess, sys, tempfile, types

import numpy


def load_megatron(folder):
    """The module by itself: what it imports of PyTorch and of the rest is only needed for object storage and for tensors as input."""
    class Anything(types.ModuleType):
        def __getattr__(self, name):
            if name.startswith("__"): raise AttributeError(name)
            return type(name, (), {"__init__": lambda self, *a, **k: None})
    class Tensor: pass
    for name in ("torch", "megatron", "megatron.core", "megatron.core.datasets", "megatron.core.datasets.object_storage_utils", "megatron.core.datasets.utils_s3",
                 "megatron.core.datasets.utils", "megatron.core.msc_utils", "megatron.core.utils"):
        sys.modules[name] = Anything(name)
    torch = sys.modules["torch"]
    torch.Tensor, torch.utils = Tensor, types.SimpleNamespace(data=types.SimpleNamespace(Dataset=object))
    storage = sys.modules["megatron.core.datasets.object_storage_utils"]
    storage.is_object_storage_path = lambda path: False
    sys.modules["megatron.core.msc_utils"].MultiStorageClientFeature = type("F", (), {"is_enabled": staticmethod(lambda: False)})
    sys.modules["megatron.core.utils"].log_single_rank = lambda *a, **k: None
    spec = importlib.util.spec_from_file_location("megatron.core.datasets.indexed_dataset", os.path.join(folder, "core/datasets/indexed_dataset.py"))
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def main():
    clover, megatron = sys.argv[1], load_megatron(sys.argv[2])
    r, bad = random.Random(1), 0
    texts = ["".join(chr(r.choice([r.randint(32, 126), r.randint(0xa0, 0x17f), r.randint(0x4e00, 0x4fff)])) for _ in range(r.choice([0, 1, 5, 300, 4000]))) for _ in range(500)]
    folder = tempfile.mkdtemp()
    def same(what, a, b):
        nonlocal bad
        equal = open(a, "rb").read() == open(b, "rb").read()
        print(f"{what}: {'the same bytes' if equal else 'DIFFERENT'}")
        bad += not equal
    for part, some in (("a", texts[:300]), ("b", texts[300:]), ("all", texts)):
        with open(f"{folder}/{part}.jsonl", "w") as f:
            for t in some: f.write(json.dumps({"text": t}) + "\n")
        subprocess.run([clover, "tokenize", "--tokenizer", "bytes", "--out", f"{folder}/{part}", f"{folder}/{part}.jsonl"], check=True, stdout=subprocess.DEVNULL)
        builder = megatron.IndexedDatasetBuilder(f"{folder}/{part}-m.bin", dtype=numpy.uint16)
        for t in some:
            if t: builder.add_document(list(t.encode()) + [256], [len(t.encode()) + 1])
        builder.finalize(f"{folder}/{part}-m.idx")
        for ending in ("bin", "idx"): same(f"{part}.{ending}", f"{folder}/{part}.{ending}", f"{folder}/{part}-m.{ending}")
    subprocess.run([clover, "merge", "--out", f"{folder}/merged", f"{folder}/a", f"{folder}/b"], check=True, stdout=subprocess.DEVNULL)
    builder = megatron.IndexedDatasetBuilder(f"{folder}/merged-m.bin", dtype=numpy.uint16)
    for part in "ab": builder.add_index(f"{folder}/{part}-m")
    builder.finalize(f"{folder}/merged-m.idx")
    for ending in ("bin", "idx"): same(f"merged.{ending}", f"{folder}/merged.{ending}", f"{folder}/merged-m.{ending}")
    data = megatron.IndexedDataset(f"{folder}/all")
    full = [t for t in texts if t]
    read = len(data) == len(full) and all(list(data[i]) == list(t.encode()) + [256] for i, t in enumerate(full))
    print("read by Megatron:", "as it was" if read else "DIFFERENT")
    info = json.loads(subprocess.run([clover, "info", "--json", f"{folder}/all-m"], check=True, stdout=subprocess.PIPE).stdout)
    counted = info["documents"] == len(full) and info["tokens"] == sum(len(t.encode()) + 1 for t in full)
    print("Megatron's file read by clover:", "as it was" if counted else "DIFFERENT")
    bad += (not read) + (not counted)
    print(f"{bad} differences")
    return bad > 0


if __name__ == "__main__": sys.exit(main())

#!/usr/bin/env python3
"""Compares Clover's SentencePiece with Debian's programs (0.1.97) and, where installed, the Python package: ids, decoded text, speed.

    apt-get install sentencepiece; pip install sentencepiece      (run with 0.1.97 and 0.2.3)
    make corpus-packages
    tests/compare_sentencepiece.py --program ./clover [--models FOLDER]

The corpus is text and code of this machine: two manuals in many languages (make corpus-packages), C++ headers, Python and Perl sources. For BPE and unigram and
the normalizations nmt_nfkc, nfkc and identity, spm_train makes a model of 32,000 pieces (kept in FOLDER). Every line and RANDOM (100,000) random strings are
encoded with spm_encode and with Clover, and the ids decoded with both. The Python package also gets whole documents with their line feeds; it breaks near-ties of
unigram scores in its own way, so its differences are printed and not counted. Ends with exit code 1 if any id or text differs from Debian's.
"""
import argparse
import glob
import gzip
import json
import os
import random
import subprocess
import sys
import tempfile
import time

MODELS = {
    "bpe-nmt": ["--model_type=bpe"],
    "bpe-nfkc": ["--model_type=bpe", "--normalization_rule_name=nfkc", "--remove_extra_whitespaces=false", "--byte_fallback=true"],
    "bpe-identity": ["--model_type=bpe", "--normalization_rule_name=identity", "--remove_extra_whitespaces=false", "--byte_fallback=true",
                     "--split_by_whitespace=false", "--split_digits=true", "--user_defined_symbols=<sep>,<se,ab,▁the,foo bar"],
    "unigram-nmt": ["--model_type=unigram", "--byte_fallback=true"],
    "unigram-nfkc": ["--model_type=unigram", "--normalization_rule_name=nfkc", "--remove_extra_whitespaces=false", "--split_by_whitespace=false"],
    "unigram-identity": ["--model_type=unigram", "--normalization_rule_name=identity", "--remove_extra_whitespaces=false", "--byte_fallback=true",
                         "--allow_whitespace_only_pieces=true", "--user_defined_symbols=<sep>,<se,ab,▁the,foo bar"],
}


def random_strings(count, seed):
    """As bytes, some of them no UTF-8: words, spaces, controls, all planes, long runs, names of control and byte pieces."""
    r = random.Random(seed)
    spaces = [" ", "  ", "\t", "\r", "\v", "\u00a0", "\u0085", "\u1680", "\u2000", "\u200b", "\u2028", "\u202f", "\u3000", "\ufeff", "▁", "▁▁"]
    words = ["the", "The", "naïve", "Straße", "日本語", "中文", "한국어", "Русский", "العربية", "हिन्दी", "ไทย", "ελληνικά", "e\u0301", "a\u0308\u0323", "👩\u200d👧", "½", "²", "٣", "Ⅷ", "ﬁ",
             "\ufdfa", "㌔", "ｶﾞ", "가", "<s>", "</s>", "<unk>", "<0x41>", "<sep>", "<se", "ab", "▁the", "foo bar", "__init__", "0x1F", "3.14159", "https://example.org/?q=1"]
    planes = [(0x20, 0x7e)] * 4 + [(0, 0x1f), (0x7f, 0xff), (0x100, 0x24f), (0x300, 0x36f), (0x370, 0x6ff), (0x900, 0x10ff), (0x1100, 0x1fff), (0x2000, 0x2bff), (0x3000, 0x30ff),
              (0x4e00, 0x9fff), (0xac00, 0xd7a3), (0xe000, 0xffff), (0x10000, 0x1ffff), (0x20000, 0x3ffff), (0x40000, 0xdffff), (0xe0000, 0xe01ef), (0xf0000, 0x10ffff)]
    out = []
    for _ in range(count):
        s = b""
        for _ in range(r.randint(0, 12)):
            kind = r.random()
            if kind < 0.25:
                s += r.choice(spaces).encode() * r.choice([1, 1, 1, 2, 3, 7])
            elif kind < 0.55:
                s += r.choice(words).encode()
            elif kind < 0.9:
                low, high = r.choice(planes)
                s += "".join(chr(c) for c in (r.randint(low, high) for _ in range(r.randint(1, 6)))).encode()
            elif kind < 0.96:
                s += bytes(r.randrange(256) for _ in range(r.randint(1, 6)))
            else:
                s += r.choice(["a", "ab", " ", "!", "é", "字", "😀", "e\u0301", "▁"]).encode() * r.randint(20, 400)
        out.append(s)
    return out


def read(path):
    with (gzip.open if path.endswith(".gz") else open)(path, "rb") as file:
        return file.read()


def corpus(limit):
    """Documents: up to `limit` bytes of each kind of text and code."""
    kinds = ["/usr/share/doc/installation-guide-amd64/*/*.txt.gz", "/usr/share/debian-reference/*.txt.gz", "/usr/include/c++/*/bits/*",
             "/usr/lib/python3*/*.py", "/usr/share/perl/5*/**/*.pm"]
    documents = []
    for pattern in kinds:
        taken = 0
        for path in sorted(glob.glob(pattern, recursive=True)):
            if os.path.isfile(path) and taken < limit:
                documents.append(read(path))
                taken += len(documents[-1])
    return documents


def run(command, data):
    start = time.perf_counter()
    out = subprocess.run(command, input=data, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=True).stdout
    return out, time.perf_counter() - start


def count_differences(name, inputs, ours, theirs):
    if len(ours) != len(theirs):
        print(f"  {name}: {len(ours)} lines, expected {len(theirs)}")
        return abs(len(ours) - len(theirs))
    different = [i for i in range(len(ours)) if ours[i] != theirs[i]]
    for i in different[:3]:
        print(f"  {name}: {inputs[i][:80]!r}\n    Clover    {ours[i][:160]}\n    reference {theirs[i][:160]}")
    return len(different)


def encode_documents(program, model, documents):
    """With their line feeds, as JSON strings; only UTF-8."""
    lines = b"".join(json.dumps(d.decode(), ensure_ascii=False).encode() + b"\n" for d in documents)
    with tempfile.NamedTemporaryFile("wb", suffix=".jsonl") as file:
        file.write(lines)
        file.flush()
        return [json.loads(x) for x in run([program, "tokenizer", "encode", "--tokenizer", model, "--json", file.name], b"")[0].splitlines()]


def compare(program, model, lines, documents):
    data = b"\n".join(lines) + b"\n"
    theirs, their_time = run(["spm_encode", "--model=" + model, "--output_format=id"], data)
    ours, our_time = run([program, "tokenizer", "encode", "--tokenizer", model, "-"], data)
    failures = count_differences("ids", lines, ours.split(b"\n"), theirs.split(b"\n"))
    their_text = run(["spm_decode", "--model=" + model, "--input_format=id"], theirs)[0]
    our_text = run([program, "tokenizer", "decode", "--tokenizer", model, "-"], theirs)[0]
    failures += count_differences("text", lines, our_text.split(b"\n"), their_text.split(b"\n"))
    mb = len(data) / 1e6
    print(f"{os.path.basename(model)}: {len(lines)} lines, {mb:.1f} MB, {failures} differences; whole programs: Clover {mb / our_time:.1f} MB/s, spm_encode {mb / their_time:.1f} MB/s")
    try:
        import sentencepiece
    except ImportError:
        return failures
    processor = sentencepiece.SentencePieceProcessor(model_file=model)
    ours = encode_documents(program, model, documents)
    different = [i for i, d in enumerate(documents) if processor.encode(d) != ours[i]]
    print(f"  Python sentencepiece {sentencepiece.__version__}: {len(different)} of {len(documents)} whole documents differ")
    return failures


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="./clover", help="the clover program")
    parser.add_argument("--models", help="where models are kept between runs")
    parser.add_argument("--random", type=int, default=100_000, help="number of random strings")
    parser.add_argument("--limit", type=int, default=4_000_000, help="bytes of each of five kinds of text")
    parser.add_argument("--vocab", type=int, default=32_000, help="pieces of a model")
    arguments = parser.parse_args()
    documents = corpus(arguments.limit)
    texts = [t.replace(b"\n", b"") for t in random_strings(arguments.random, 7)]
    lines = [line for d in documents for line in d.split(b"\n")] + texts
    print(f"{len(documents)} documents, {sum(map(len, documents)) / 1e6:.1f} MB; {len(texts)} random strings, {sum(map(len, texts)) / 1e6:.1f} MB")
    documents = [d for d in documents if d.isascii() or is_utf8(d)]
    failures = 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.models or temporary
        os.makedirs(folder, exist_ok=True)
        path = os.path.join(temporary, "corpus.txt")
        with open(path, "wb") as out:
            out.write(b"\n".join(documents))
        for name, options in MODELS.items():
            prefix = os.path.join(folder, name)
            if not os.path.exists(prefix + ".model"):
                run(["spm_train", "--input=" + path, "--model_prefix=" + prefix, f"--vocab_size={arguments.vocab}", "--hard_vocab_limit=false", "--num_threads=1",
                     "--minloglevel=2", "--input_sentence_size=100000", *options], b"")
            failures += compare(arguments.program, prefix + ".model", lines, documents)
    print(f"{failures} differences from Debian's programs")
    sys.exit(1 if failures else 0)


def is_utf8(data):
    try:
        data.decode()
        return True
    except UnicodeDecodeError:
        return False


if __name__ == "__main__":
    main()

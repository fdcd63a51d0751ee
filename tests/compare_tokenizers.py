#!/usr/bin/env python3
"""Compares Clover's byte-level BPE with Hugging Face `tokenizers`: training, ids, decoded text, speed.

    pip install tokenizers            (run with tokenizers 0.23.3, Python 3.11)
    make corpus                       (text for it: manuals in 21 languages, code in three)
    tests/compare_tokenizers.py ./clover demo/corpus/*.train.jsonl

For BLOOM's and GPT-2's pipeline: trains a tokenizer of 32,000 with both programs and compares the vocabularies; encodes every document and RANDOM (100,000)
random strings with both and compares ids, and what they decode to; measures both on documents of some 4 KB, one thread each, in turn, median of five.
Ends with exit code 1 if anything differs. What is not UTF-8 is given to Hugging Face as Python's errors="replace" makes of it.
"""
import argparse, json, os, random, statistics, subprocess, sys, tempfile, time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
from tokenizers import Regex, Tokenizer, __version__, decoders, models, pre_tokenizers, processors, trainers

BLOOM = r" ?[^(\s|[.,!?…。，、।۔،])]+"


def bloom():
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(BLOOM), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.post_processor, t.decoder = processors.ByteLevel(add_prefix_space=True, trim_offsets=False, use_regex=False), decoders.ByteLevel()
    return t, ["<unk>", "<s>", "</s>", "<pad>"]


def gpt2():
    t = Tokenizer(models.BPE())
    t.pre_tokenizer, t.post_processor, t.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), processors.ByteLevel(trim_offsets=False), decoders.ByteLevel()
    return t, ["<|endoftext|>"]


def random_strings(count, seed):
    """As bytes, some of them no UTF-8."""
    r = random.Random(seed)
    spaces = [" ", "  ", "\t", "\n", "\r\n", "\u00a0", "\u0085", "\u1680", "\u180e", "\u2000", "\u200a", "\u200b", "\u2028", "\u2029", "\u202f", "\u205f", "\u3000", "\ufeff"]
    words = ["the", "The", "I'm", "we'll", "WE'LL", "'s", "don't", "naïve", "Straße", "été", "日本語", "中文", "한국어", "Русский", "العربية", "हिन्दी", "ไทย", "ελληνικά",
             "e\u0301", "a\u0308\u0323", "👩\u200d👩\u200d👧", "🇩🇪", "👍🏽", "½", "²", "٣", "９", "Ⅷ", "İ", "ß", "ﬁ", "ǆ", "<s>", "</s>", "<pad>", "<|endoftext|>", "</s", "<", "|", "(", ")",
             "...", "…", "。", "，", "।", "۔", "،", "!", "?!", "#include <", "__init__", "0x1F", "3.14159", "https://example.org/?q=1&r=2"]
    planes = [(0x20, 0x7e)] * 4 + [(0, 0x1f), (0x7f, 0xff), (0x100, 0x24f), (0x300, 0x36f), (0x370, 0x5ff), (0x600, 0x6ff), (0x900, 0xdff), (0xe00, 0x10ff), (0x1100, 0x1fff),
              (0x2000, 0x2bff), (0x3000, 0x30ff), (0x4e00, 0x9fff), (0xac00, 0xd7a3), (0xe000, 0xf8ff), (0xfe00, 0xffff), (0x10000, 0x1ffff), (0x20000, 0x3ffff),
              (0x40000, 0xdffff), (0xe0000, 0xe01ef), (0xf0000, 0x10ffff)]
    out = []
    for _ in range(count):
        s = b""
        for _ in range(r.randint(0, 12)):
            kind = r.random()
            if kind < 0.25: s += r.choice(spaces).encode() * r.choice([1, 1, 1, 2, 3, 7])
            elif kind < 0.55: s += r.choice(words).encode()
            elif kind < 0.9:
                low, high = r.choice(planes)
                for _ in range(r.randint(1, 6)):
                    c = r.randint(low, high)
                    if not 0xd800 <= c <= 0xdfff: s += chr(c).encode()
            elif kind < 0.96: s += bytes(r.randrange(256) for _ in range(r.randint(1, 6)))
            else: s += r.choice(["a", "ab", " ", "\n", "!", "é", "字", "😀"]).encode() * r.randint(20, 400)
        out.append(s)
    return out


class Clover:
    def __init__(self, program, tokenizer): self.program, self.tokenizer = program, tokenizer
    def run(self, command, lines, *options):
        with tempfile.NamedTemporaryFile("wb", suffix=".jsonl") as f:
            f.write(b"".join(line + b"\n" for line in lines)); f.flush()
            start = time.perf_counter()
            p = subprocess.run([self.program, "tokenizer", command, "--tokenizer", self.tokenizer, "--json", *options, f.name], stdout=subprocess.PIPE, check=True)
            return p.stdout.splitlines(), time.perf_counter() - start
    def encode(self, texts): return [json.loads(x) for x in self.run("encode", [json.dumps(t, ensure_ascii=False).encode() for t in texts])[0]]
    def decode(self, ids): return [json.loads(x) for x in self.run("decode", [json.dumps(i).encode() for i in ids])[0]]
    def encode_bytes(self, raw):
        """Raw bytes, one text a line: those without a line feed only."""
        with tempfile.NamedTemporaryFile("wb") as f:
            f.write(b"".join(b + b"\n" for b in raw)); f.flush()
            p = subprocess.run([self.program, "tokenizer", "encode", "--tokenizer", self.tokenizer, f.name], stdout=subprocess.PIPE, check=True)
            return [[int(x) for x in line.split()] for line in p.stdout.splitlines()]
    def speed(self, texts):
        p = subprocess.run([self.program, "tokenizer", "bench", "--tokenizer", self.tokenizer, "--json", "-"],
                           input=b"".join(json.dumps({"text": t}, ensure_ascii=False).encode() + b"\n" for t in texts), stdout=subprocess.PIPE, check=True)
        return json.loads(p.stdout)["mb_per_s"]


def differences(name, texts, ours, theirs):
    assert len(ours) == len(theirs) == len(texts), (name, len(ours), len(theirs), len(texts))
    bad = [i for i in range(len(texts)) if ours[i] != theirs[i]]
    print(f"  {name}: {len(texts)} texts, {len(bad)} differences", flush=True)
    for i in bad[:3]: print("    text", repr(texts[i])[:300], "\n    clover", str(ours[i])[:300], "\n    theirs", str(theirs[i])[:300])
    return len(bad)


def main():
    a = argparse.ArgumentParser()
    a.add_argument("clover"); a.add_argument("files", nargs="+"); a.add_argument("--vocab", type=int, default=32000)
    a.add_argument("--random", type=int, default=100000); a.add_argument("--seed", type=int, default=1); a.add_argument("--keep", help="folder for the tokenizers")
    a = a.parse_args()
    texts = [json.loads(line)["text"] for f in a.files for line in open(f, encoding="utf-8")]
    size = sum(len(t.encode()) for t in texts)
    print(f"tokenizers {__version__}; {len(texts)} documents, {size / 1e6:.1f} MB; {a.random} random strings")
    raw = random_strings(a.random, a.seed)
    replaced = [b.decode(errors="replace") for b in raw]
    no_feed = [b for b in raw if b"\n" not in b]
    folder = a.keep or tempfile.mkdtemp()
    bad = 0
    for name, make in (("bloom", bloom), ("gpt2", gpt2)):
        print(name)
        theirs, special = make()
        start = time.perf_counter()
        theirs.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=a.vocab, min_frequency=2, special_tokens=special,
                                                              initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
        their_seconds = time.perf_counter() - start
        path, our_path = f"{folder}/{name}.json", f"{folder}/{name}-clover.json"
        theirs.save(path)
        start = time.perf_counter()
        subprocess.run([a.clover, "tokenizer", "train", "--style", name, "--vocab", str(a.vocab), "--out", our_path, *a.files], check=True, stdout=subprocess.DEVNULL)
        print(f"  trained in {time.perf_counter() - start:.1f} s by clover, {their_seconds:.1f} s by tokenizers")
        ours, reference = json.load(open(our_path)), json.load(open(path))
        for part in ("vocab", "merges"):
            same = ours["model"][part] == reference["model"][part]
            print(f"  {part}: {'the same' if same else 'DIFFERENT'}")
            bad += not same
        loaded = Tokenizer.from_file(our_path)  # that Hugging Face loads what clover wrote
        for origin, tokenizer, file in (("the file of tokenizers", theirs, path), ("clover's own file", loaded, our_path)):
            clover = Clover(a.clover, file)
            print(f"  {origin}")
            for what, some in (("corpus", texts), ("random", replaced)):
                ids = [e.ids for e in tokenizer.encode_batch(some)]
                bad += differences(what + " ids", some, clover.encode(some), ids)
                bad += differences(what + " decoded", some, clover.decode(ids), tokenizer.decode_batch(ids))
            bad += differences("random bytes", no_feed, clover.encode_bytes(no_feed), [e.ids for e in tokenizer.encode_batch([b.decode(errors="replace") for b in no_feed])])
        pieces = [t[i:i + 3000] for t in texts for i in range(0, len(t), 3000)]
        random.Random(2).shuffle(pieces)
        pieces = pieces[:2500]
        megabytes = sum(len(p.encode()) for p in pieces) / 1e6
        our_speed, their_speed = [], []
        for _ in range(6):
            our_speed.append(clover.speed(pieces))
            start = time.perf_counter()
            theirs.encode_batch_fast(pieces)  # without offsets, which clover does not count either
            their_speed.append(megabytes / (time.perf_counter() - start))
        our, their = statistics.median(our_speed[1:]), statistics.median(their_speed[1:])
        print(f"  speed on {len(pieces)} documents, {megabytes:.1f} MB, one thread: clover {our:.1f} MB/s, tokenizers {their:.1f} MB/s, {our / their:.1f} times")
    print(f"{bad} differences")
    return bad > 0


if __name__ == "__main__": sys.exit(main())

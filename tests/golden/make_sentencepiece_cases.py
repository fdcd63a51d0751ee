"""Small SentencePiece models and the ids and texts that the reference programs make with them, for test_sentencepiece.cpp.

Needs Debian's spm_train, spm_encode and spm_decode 0.1.97 and Python's sentencepiece 0.2.3. Writes, beside itself, for each model
  sentencepiece-NAME.model.gz
  sentencepiece-NAME.cases.gz   a line a case: the text in hexadecimal, its ids, what those ids decode to in hexadecimal, separated by tabs.
Texts of one line are encoded by spm_encode, texts that hold a line feed by the Python package; all are decoded by spm_decode.

    python3 make_sentencepiece_cases.py
"""
import gzip
import os
import random
import subprocess
import tempfile

import sentencepiece

HERE = os.path.dirname(os.path.abspath(__file__))

SENTENCES = [
    "the quick brown fox jumps over the lazy dog and runs away from the other foxes",
    "installing the system takes about an hour if the network is fast enough",
    "def encode(self, text): return [self.table[c] for c in text if c in self.table]",
    "for (int i = 0; i < 128; i++) total += values[i] * weights[i];",
    "schnelle Füchse springen über faule Hunde, größer als üblich",
    "le système est installé à côté de la forêt, où l'été commence",
    "быстрая коричневая лиса прыгает через ленивую собаку",
    "素早い茶色の狐はのろまな犬を飛び越える",
    "快速的棕色狐狸跳过懒狗，安装系统需要一个小时",
    "el zorro marrón rápido salta sobre el perro perezoso ﬁn ½ Ⅳ ㌔",
    "numbers 0 1 23 456 7890 3.14159 and 2,718,281",
]

USER = "--user_defined_symbols=<sep>,<se,fox,▁the,ab"
MODELS = {
    "bpe-nfkc": ["--model_type=bpe", "--normalization_rule_name=nfkc", "--remove_extra_whitespaces=false", "--byte_fallback=true", USER, "--control_symbols=<ctl>"],
    "unigram-nmt": ["--model_type=unigram"],
    "unigram-cf": ["--model_type=unigram", "--normalization_rule_name=nmt_nfkc_cf", "--byte_fallback=true", "--treat_whitespace_as_suffix=true"],
    "bpe-identity": ["--model_type=bpe", "--normalization_rule_name=identity", "--split_by_whitespace=false", "--remove_extra_whitespaces=false",
                     "--byte_fallback=true", "--split_digits=true", "--add_dummy_prefix=false"],
    "bpe-plain": ["--model_type=bpe", "--normalization_rule_name=identity", "--treat_whitespace_as_suffix=true", USER],
    "unigram-identity": ["--model_type=unigram", "--normalization_rule_name=identity", "--remove_extra_whitespaces=false", "--allow_whitespace_only_pieces=true",
                         "--byte_fallback=true", USER, "--unk_surface= ? "],
    "char": ["--model_type=char", "--normalization_rule_name=identity", "--byte_fallback=true"],
    "word": ["--model_type=word", "--normalization_rule_name=identity"],
}
DENORMALIZED = {"bpe-plain"}  # these get a denormalizer


def corpus(rng):
    words = [w for s in SENTENCES for w in s.split()]
    lines = list(SENTENCES) * 20
    for _ in range(1500):
        lines.append(rng.choice(["", "  ", "\t"]) + " ".join(rng.choice(words) for _ in range(rng.randint(2, 12))))
    return "\n".join(lines) + "\n"


def random_text(rng):
    pools = [
        lambda: rng.choice(SENTENCES)[: rng.randint(1, 40)].encode(),
        lambda: bytes(rng.randrange(256) for _ in range(rng.randint(1, 8))),                      # mostly not UTF-8
        lambda: chr(rng.choice([*range(0x00, 0x20), 0x7F, 0x85, 0xA0, 0xAD, 0x200B, 0x2028, 0x3000, 0xFEFF])).encode(),
        lambda: "".join(chr(rng.randrange(0x20, 0x3100)) for _ in range(rng.randint(1, 6))).encode(),
        lambda: chr(rng.choice([rng.randrange(0x40000, 0xE0000), rng.randrange(0x1F300, 0x1F700), rng.randrange(0xF900, 0xFB50), 0xFDFA])).encode(),
        lambda: rng.choice([" ", "▁", "a", "中", "é", "e\u0301", "\r", "ab"]).encode() * rng.randint(1, 30),
        lambda: rng.choice([" ", "  ", "<sep>", "<se", "<s>", "</s>", "<unk>", "<ctl>", "<0x41>", "▁the", "fox", "㌔", "ﬁ", "Ⅳ"]).encode(),
    ]
    return b"".join(rng.choice(pools)() for _ in range(rng.randint(1, 9)))


def run(command, data):
    return subprocess.run(command, input=data, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=True).stdout


def write_gz(name, data):
    with open(os.path.join(HERE, name), "wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=0) as out:
        out.write(data)


def cases_of(model, rng):
    fixed = ["", " ", "  ", "▁", "▁▁ a", "hello  world ", " hello", "hello\r", "▁lower", "fé f", "a b\u3000c", "\u00a8", "\u0001", "\u0001 a", "x" * 70, "ab" * 40]
    texts = [t.encode() for t in fixed] + [s.encode() for s in SENTENCES] + [random_text(rng).replace(b"\n", b"") for _ in range(220)]
    ids = run(["spm_encode", "--model=" + model, "--output_format=id"], b"\n".join(texts) + b"\n").split(b"\n")[:-1]
    assert len(ids) == len(texts)
    processor = sentencepiece.SentencePieceProcessor(model_file=model)
    differ = sum(" ".join(map(str, processor.encode(t))).encode() != i for t, i in zip(texts, ids))
    print(os.path.basename(model), len(texts), "texts; Python differs on", differ)
    documents = ["\n", "a\n", "\na", "a\n\n b\nc\n".replace("c", SENTENCES[0]), "\n".join(SENTENCES), SENTENCES[1] + " \n\t\r\n  " + SENTENCES[4]]
    texts += [d.encode() for d in documents]
    ids += [" ".join(map(str, processor.encode(d))).encode() for d in documents]
    rows = ids + [b" ".join(b"%d" % rng.randrange(processor.vocab_size()) for _ in range(rng.randint(1, 20))) for _ in range(60)]
    decoded = []
    for row in rows:  # one by one: what is decoded may hold line feeds
        decoded.append(run(["spm_decode", "--model=" + model, "--input_format=id"], row + b"\n")[:-1])
    texts += [b""] * (len(rows) - len(texts))
    lines = [b"\t".join([text.hex().encode(), row, back.hex().encode()]) for text, row, back in zip(texts, rows, decoded)]
    for i in range(len(ids), len(lines)):
        lines[i] = b"-" + lines[i]  # only decoded
    return b"\n".join(lines) + b"\n"


def main():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "corpus.txt")
        rng = random.Random(4)
        with open(path, "w") as out:
            out.write(corpus(rng))
        rules = os.path.join(folder, "rules.tsv")
        with open(rules, "w") as out:
            out.write("66 6F 78\t77 6F 6C 66\n66\t46\n")  # fox -> wolf, f -> F
        for name, options in MODELS.items():
            prefix = os.path.join(folder, name)
            extra = ["--denormalization_rule_tsv=" + rules] if name in DENORMALIZED else []
            run(["spm_train", "--input=" + path, "--model_prefix=" + prefix, "--vocab_size=600", "--hard_vocab_limit=false", "--num_threads=1",
                 "--minloglevel=2", *options, *extra], b"")
            with open(prefix + ".model", "rb") as file:
                write_gz(f"sentencepiece-{name}.model.gz", file.read())
            write_gz(f"sentencepiece-{name}.cases.gz", cases_of(prefix + ".model", rng))


if __name__ == "__main__":
    main()

"""Writes bpe_trainer.jsonl: texts with the vocabularies that Hugging Face's BpeTrainer makes of them (tests/test_bpe_trainer.cpp).

    python3 -m venv venv && venv/bin/pip install tokenizers==0.23.3 && venv/bin/python make_bpe_trainer.py

One case a line: style, special, documents, vocab, min_frequency; then what came of it: `tokens` in the order of their ids, without the special ones and the 256
characters that follow them; `merges` as pairs of ids; `encoded`: [text, ids] by that tokenizer.
Few letters, so that counts tie, pairs overlap, two pairs make one token, and a pair is chosen again after its merge.
"""
import json, os, pathlib, random

os.environ["TOKENIZERS_PARALLELISM"] = "false"
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

STYLES = {
    "bloom": (["<unk>", "<s>", "</s>", "<pad>"],
              pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(r" ?[^(\s|[.,!?…。，、।۔،])]+"), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])),
    "gpt2": (["<|endoftext|>"], pre_tokenizers.ByteLevel(add_prefix_space=False)),
}
PROSE = ["The quick brown fox, the lazy dog; the quick-witted foxes.\nThe dog's foxes don't quit!  They'll quit at 12:30, 12:45 and 13:00.",
         "Der schnelle braune Fuchs springt über den faulen Hund, über den Zaun, über alles.", "快速的棕色狐狸跳过懒狗。快速的狐狸，懒狗。", "Быстрая лиса прыгает через ленивую собаку. Быстрая собака.",
         "तेज़ लोमड़ी आलसी कुत्ते के ऊपर कूदती है। तेज़ कुत्ते।", "for (int i = 0; i < n; i++) {\n    sum += x[i];\n    sum -= y[i];\n}\n", "👩‍👩‍👧 👍🏽 👍🏽 é e\u0301 e\u0301 \u00a0\u2028\t\t\t"]


def case(style, documents, vocab, min_frequency=2, special=None):
    special, tokenizer = special or STYLES[style][0], Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = STYLES[style][1]
    tokenizer.train_from_iterator(documents, trainers.BpeTrainer(vocab_size=vocab, min_frequency=min_frequency, special_tokens=special, show_progress=False,
                                                                 initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    model = json.loads(tokenizer.to_str())["model"]
    ids = model["vocab"]
    alphabet = set(pre_tokenizers.ByteLevel.alphabet()) | set(special)
    return {"style": style, "special": special, "documents": documents, "vocab": vocab, "min_frequency": min_frequency,
            "tokens": [t for t, _ in sorted(ids.items(), key=lambda x: x[1]) if t not in alphabet], "merges": [[ids[a], ids[b]] for a, b in model["merges"]],
            "encoded": [[t, tokenizer.encode(t).ids] for t in [" ".join(documents)[:200], "xyz " + documents[-1][::-1][:80] + special[0]]]}


def main():
    r = random.Random(4)
    letters = lambda alphabet, documents, length: ["".join(r.choice(alphabet) for _ in range(length)) for _ in range(documents)]
    cases = [case("bloom", PROSE * 2, 480), case("gpt2", PROSE * 2, 480), case("gpt2", PROSE, 100000, 3), case("bloom", ["aaaaaaa aaaa aaa aa", "aaaaaaaaaaa"], 290),
             case("gpt2", ["<|endoftext|> <|endoftext|>endoftext"] * 3, 290), case("bloom", ["<unk> <unk><unk> </s></s> a<s>b<s>"] * 3, 300),
             case("bloom", ["ab ab abc ababc aab"] * 3, 275, special=["ab", "a", "abc ab"]), case("gpt2", ["x"], 300), case("bloom", ["ab"], 300, 1)]
    cases += [case(style, letters(alphabet, documents, length), vocab, least)
              for style, alphabet, documents, length, vocab, least in
              [("gpt2", "ab", 12, 40, 330, 2), ("bloom", "abc", 20, 60, 600, 1), ("bloom", "ab ", 20, 60, 500, 1), ("gpt2", "abc", 30, 30, 600, 2), ("gpt2", "a字é ", 20, 40, 500, 2),
               ("bloom", "<unk>s/ ", 20, 60, 600, 2), ("gpt2", "aA1 .,'\n", 20, 60, 500, 2)]]
    path = pathlib.Path(__file__).with_name("bpe_trainer.jsonl")
    path.write_text("".join(json.dumps(c, ensure_ascii=False, separators=(",", ":")) + "\n" for c in cases), encoding="utf-8")
    print(path.stat().st_size, "bytes,", len(cases), "cases")


main()

#!/usr/bin/env python3
"""Makes tokenizer_cases.jsonl.gz: small tokenizer.json files and what Hugging Face `tokenizers` does with them. Made with tokenizers 0.23.3, CPython 3.11:

    python3 -m venv venv && venv/bin/pip install tokenizers==0.23.3 && venv/bin/python make_tokenizer_cases.py

A line is {"name", "tokenizer"} and begins a group, or a case of the group: {"text" (bytes in hexadecimal), "ids", "decoded"} and, where they differ, "with_special" (with what
the post-processor adds) and "decoded_special" (special tokens written out). Bytes that are not UTF-8 are given to tokenizers as Python's errors="replace" makes of them.
"""
import gzip, json, os, random

os.environ["TOKENIZERS_PARALLELISM"] = "false"
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

TEXT = """All human beings are born free and equal in dignity and rights. They are endowed with reason and conscience.
Tous les êtres humains naissent libres et égaux en dignité et en droits. L'été, c'était déjà l'hiver.
Todos los seres humanos nacen libres e iguales en dignidad y derechos; ¿qué más?
Alle Menschen sind frei und gleich an Würde und Rechten geboren. Straße, Größe, Übermut.
Tất cả mọi người sinh ra đều được tự do và bình đẳng về nhân phẩm và quyền.
人人生而自由，在尊严和权利上一律平等。他们赋有理性和良心。
すべての人間は、生まれながらにして自由であり、かつ、尊厳と権利とについて平等である。
모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다.
सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता प्राप्त है। सब लोग।
সমস্ত মানুষ স্বাধীনভাবে সমান মর্যাদা এবং অধিকার নিয়ে জন্মগ্রহণ করে।
يولد جميع الناس أحرارًا متساوين في الكرامة والحقوق، وقد وهبوا عقلاً وضميرًا.
تمام انسان آزاد اور حقوق و عزت کے اعتبار سے برابر پیدا ہوئے ہیں۔
Все люди рождаются свободными и равными в своём достоинстве и правах.
int main(int argc, char** argv) { for (int i = 0; i < argc; i++) printf("%s\\n", argv[i]); return 0; }
    def __init__(self, x=None):\n        self.x = x or [1, 2, 3.14]\n\n\n\tif x != 0x1F and x <= 2**10: return x
I'm sure we'll see that they're not what we've seen. It's 2024, isn't it? 10,000 + 1/2 = 20000/2...
"""
BLOOM = r" ?[^(\s|[.,!?…。，、।۔،])]+"
LLAMA = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
A01 = ["a  b", "a   b  ", "  a", "a\n\n  b", "a\r\nb", "a \t b", "x\u00a0\u00a0y", "\u3000\u3000a", "!\u0085", "a\u2028b", "a\u200bb", "I'm we'll WE'LL", "'s's", "abc123,4½²x", "e\u0301a",
       "\uff199", ""]
POOL = [" ", "  ", "   ", "\n", "\n\n", "\r\n", "\t", "\u00a0", "\u0085", "\u1680", "\u180e", "\u2000", "\u2028", "\u200b", "\u202f", "\u3000", "a", "b", "the", "The", " and", "'s", "'S", "'ll",
        "'RE", "s", "K", "\u212a", "\u017f", "1", "23", "4567", "½", "²", "٣", "９", "Ⅷ", "é", "e\u0301", "a\u0323\u0302", "Å", "ﬁ", "ß", "İ", "ǅ", "Σ", "Straße", "日本", "人人", "。", "，", "、", "자유",
        "ㄱ", "\u1100\u1161", "कि", "।", "۔", "،", "حقوق", "Все", "😀", "👩\u200d👧", "\u0378", "\ufffd", "\U0002ebf0", "\U00011b00", "\u1c89", "\U000107a0", "\U0010ffff", ".", ",", "!?", "(", ")", "|", "[", "]",
        "_", "-", "//", "\0", "\x1b", "<s>", "</s>", "<m>", "cat", "<", "\ufeff", "ｶﾞ", "㍿", "㋿"]
BYTES = dict(zip(list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256)), map(chr, list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256)))))
for b in range(256): BYTES.setdefault(b, chr(256 + len(BYTES) - 188))

rng = random.Random(4)


def random_text():
    s = b""
    for _ in range(rng.choice([1, 2, 3, 5, 8, 13])):
        s += rng.choice(POOL).encode() if rng.random() < 0.93 else bytes(rng.randrange(256) for _ in range(rng.randint(1, 4)))
    return s


def spelt(text): return "".join(BYTES[b] for b in text.encode())


def trained(pre, vocab, special):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer, t.post_processor, t.decoder = pre, processors.ByteLevel(trim_offsets=False), decoders.ByteLevel()
    t.train_from_iterator(TEXT.splitlines(keepends=True), trainers.BpeTrainer(vocab_size=vocab, special_tokens=special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                                                              show_progress=False))
    return json.loads(t.to_str())


def base(merges=(), **members):
    """The bytes 0 to 255, then what the merges make."""
    vocab, pairs = {BYTES[b]: b for b in range(256)}, []
    for left, right in merges:
        pairs.append([spelt(left), spelt(right)])
        vocab.setdefault(spelt(left + right), len(vocab))
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    t = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None, "pre_tokenizer": byte_level, "post_processor": None, "decoder": byte_level,
         "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                   "ignore_merges": False, "vocab": vocab, "merges": pairs}, **members}
    new = len(vocab)
    for token in t["added_tokens"]:
        token["id"] = vocab.get(token["content"], new)
        new += token["id"] == new
    return t


def added(content, **flags): return {"id": None, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False, **flags}


def split(pattern, behavior="Isolated", invert=False, kind="Regex"): return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


def byte_level(prefix=False, regex=False): return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": regex}


def sequence(*steps): return {"type": "Sequence", "pretokenizers": list(steps)}


def groups():
    bloom = trained(pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(BLOOM), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]), 560,
                    ["<unk>", "<s>", "</s>", "<pad>"])
    gpt2 = trained(pre_tokenizers.ByteLevel(add_prefix_space=False), 520, ["<|endoftext|>"])
    lines = [line.encode() for line in TEXT.splitlines()]
    yield "bloom", bloom, lines + [t.encode() for t in A01] + [b"<s>a</s><pad>", "Hello world".encode()] + [random_text() for _ in range(220)]
    yield "gpt2", gpt2, lines + [t.encode() for t in A01] + [b"a<|endoftext|>b"] + [random_text() for _ in range(220)]
    merges = [("h", "e"), ("l", "l"), ("he", "ll"), ("hell", "o"), (" ", "a"), ("a", "b"), ("1", "2"), ("12", "3"), ("'", "s")]
    some = lambda n, *first: [t if isinstance(t, bytes) else t.encode() for t in first] + [random_text() for _ in range(n)]
    template = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}}],
                "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
                "special_tokens": {"<s>": {"id": "<s>", "ids": [264], "tokens": ["<s>"]}, "</s>": {"id": "</s>", "ids": [265, 10], "tokens": ["</s>", "\u010a"]}}}
    specials = [added("<s>", special=True), added("</s>", special=True)]
    yield "prefix space, template", base(merges[:8], pre_tokenizer=byte_level(True, True), added_tokens=specials,
                                         post_processor={"type": "Sequence", "processors": [byte_level(), template]}), some(40, "", "hello", " hello", "<s>hello</s> x")
    for name, normalizer in (("NFC", {"type": "NFC"}), ("NFKC", {"type": "NFKC"}), ("NFD", {"type": "NFD"}), ("NFKD, lowercase", {"type": "Sequence", "normalizers": [{"type": "NFKD"}, {"type": "Lowercase"}]}),
                             ("replace", {"type": "Sequence", "normalizers": [{"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": " "}, {"type": "Replace", "pattern": {"String": "a"}, "content": "hello"},
                                                                              {"type": "Prepend", "prepend": " "}]})):
        yield name, base(merges[:5], normalizer=normalizer, pre_tokenizer=byte_level(False, True),
                         added_tokens=[added("Å", normalized=True), added("ﬁ"), added("Straße", normalized=True)]), some(40)
    yield "Llama 3's expression", base(merges, pre_tokenizer=sequence(split(LLAMA), byte_level())), some(60, "1234567", "I'M we'LL Don't")
    ignoring = base(merges)
    ignoring["model"].update(ignore_merges=True)
    ignoring["model"]["vocab"][spelt("cat")] = 265
    yield "ignore_merges", ignoring, some(10, "cat", "cats", "hello")
    yield "digits", base(merges, pre_tokenizer=sequence({"type": "Digits", "individual_digits": True}, byte_level(False, True))), some(30, "a123 12")
    yield "digit runs", base(merges, pre_tokenizer=sequence({"type": "Digits", "individual_digits": False}, byte_level(False, True))), some(30, "a123 12")
    yield "white space", base(merges, pre_tokenizer=sequence({"type": "WhitespaceSplit"}, byte_level(True))), some(30, "hello hello")
    for behavior in ("Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"):
        for invert in (False, True):
            yield f"{behavior} {invert}", base([("h", "h"), ("-", "h"), ("h", "-"), ("-", "-")], pre_tokenizer=sequence(split("-", behavior, invert, "String"), split("-h*", behavior, invert), byte_level())), \
                [b"hh--hh-h", b"--", b"-hh", b"hh-", b"h-h-h--h"]
    # Case A04.
    yield "A04 prefix", base(added_tokens=[added("<a"), added("<a>")]), [b"x<a>y<a"]
    yield "A04 prefix, other order", base(added_tokens=[added("<a>"), added("<a")]), [b"x<a>y<a"]
    yield "A04 leftmost", base(added_tokens=[added("ab"), added("bcd")]), [b"abcd"]
    yield "A04 lstrip", base(added_tokens=[added("<m>", lstrip=True)]), some(10, "a  <m> b", "a\u00a0<m>", "a\u200b<m>", "\u3000<m><m>")
    yield "A04 rstrip", base(added_tokens=[added("<m>", rstrip=True), added("  ", lstrip=True)]), some(10, "a <m> \t b", "<m>  <m>", "<m>    a")
    yield "A04 single_word", base(added_tokens=[added("cat", single_word=True)]), some(10, "cat cats concat cat!", "cat_", "\u1c89cat", "cat\u0301", "½cat", "\u200dcat", "Ⓐcat")
    yield "A04 special", base(merges, pre_tokenizer=byte_level(False, True), added_tokens=[added("<s>", special=True)]), some(10, "<s><s>", "a <s> b", "<S>", "hel<s>lo")
    yield "A04 normalized", base(normalizer={"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Lowercase"}]},
                                 added_tokens=[added("É", normalized=True), added("İ"), added("CAT", normalized=True, rstrip=True)]), some(20, "éÉE\u0301e\u0301", "İi̇", "cat CAT  Cat")
    # Not byte-level: characters, unknown ones, byte tokens.
    plain = {"a": 0, " ": 1, "b": 2, "a ": 3, "a b": 4, "<unk>": 5, "<0xC3>": 6, "<0xA9>": 7}
    for unknown in (None, "<unk>"):
        for fuse in (False, True):
            for fallback in (False, True):
                t = base(pre_tokenizer=None, decoder=None)
                t["model"].update(vocab=plain, merges=[["a", " "], ["a ", "b"]], unk_token=unknown, fuse_unk=fuse, byte_fallback=fallback)
                yield f"characters, {unknown} {fuse} {fallback}", t, ["a ba b".encode(), "a日本b日".encode(), "éa éé日é".encode(), b""]


def main():
    lines = []
    for name, spec, texts in groups():
        tokenizer = Tokenizer.from_str(json.dumps(spec))
        lines.append({"name": name, "tokenizer": spec})
        for raw in texts:
            text = raw.decode(errors="replace")
            try:
                ids, special = tokenizer.encode(text, add_special_tokens=False).ids, tokenizer.encode(text).ids
            except BaseException as e:  # a panic: rstrip and lstrip tokens claim the same white space
                if "bad split" not in str(e): raise
                continue
            case = {"text": raw.hex(), "ids": ids, "decoded": tokenizer.decode(ids)}
            if special != ids: case["with_special"] = special
            if tokenizer.decode(ids, skip_special_tokens=False) != case["decoded"]: case["decoded_special"] = tokenizer.decode(ids, skip_special_tokens=False)
            lines.append(case)
    text = "".join(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n" for line in lines)
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "tokenizer_cases.jsonl.gz"), "wb") as out: out.write(gzip.compress(text.encode(), mtime=0))
    print(sum("text" in line for line in lines), "cases,", sum("name" in line for line in lines), "tokenizers")


main()

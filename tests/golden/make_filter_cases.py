"""Writes filter_cases.jsonl: documents with the values that huggingface/datatrove's Gopher filters see in them (tests/test_quality_filter.cpp,
tests/test_repetition_filter.cpp).

    python3 -m venv venv && venv/bin/pip install datatrove==0.10.1 numpy==2.4.6 regex && venv/bin/python make_filter_cases.py

datatrove is given our words (data/words.h) in place of its English tokenizer, and our punctuation in place of its list; everything else is its own. Its filters say only "keep" or "drop", so each value is found by bisecting the threshold at which that changes.
With `--check FILE.jsonl` it reads documents and the values that Clover computed for them and prints the differences.
"""
import json
import random
import sys
import unicodedata

import datatrove.pipeline.filters.gopher_quality_filter as quality
import datatrove.pipeline.filters.gopher_repetition_filter as repetition
from datatrove.data import Document


def is_punctuation(c):
    return not c.isspace() and (unicodedata.category(c)[0] in "PS" or unicodedata.category(c) == "Cc")


def words_of(text):
    return text.split()


class Punctuation:
    def __contains__(self, c):
        return is_punctuation(c)


for module in (quality, repetition):
    module.split_into_words = lambda text, language: words_of(text)
quality.PUNCTUATION_SET = Punctuation()

NO_QUALITY = dict(min_doc_words=None, max_doc_words=None, min_avg_word_length=None, max_avg_word_length=None, max_symbol_word_ratio=None,
                  max_bullet_lines_ratio=None, max_ellipsis_lines_ratio=None, max_non_alpha_words_ratio=None, min_stop_words=None)
NO_REPETITION = dict(dup_line_frac=None, dup_para_frac=None, dup_line_char_frac=None, dup_para_char_frac=None, top_n_grams=(), dup_n_grams=())


def keeps(make, text, threshold):
    answer = make(threshold).filter(Document(text=text, id="0"))
    return (answer[0] if isinstance(answer, tuple) else answer), (answer[1] if isinstance(answer, tuple) else "")


def largest_kept(make, text, high, reason=None, step=0.0):
    """The limit below which the document is dropped: the value of a rule that says "at most". step 1: whole numbers."""
    dropped = lambda t: not keeps(make, text, t)[0] and (reason is None or reason in keeps(make, text, t)[1])
    low = 1e-12 if not step else 0
    if not dropped(low) and not step:
        return 0.0
    while high - low > max(step, 1e-13):
        middle = (low + high) // 2 if step else (low + high) / 2
        low, high = (middle, high) if dropped(middle) else (low, middle)
    return high


def smallest_dropped(make, text, high, step=0.0):
    """The value of a rule that says "at least"."""
    low = 0
    while high - low > max(step, 1e-13):
        middle = (low + high) // 2 if step else (low + high) / 2
        low, high = (middle, high) if keeps(make, text, middle)[0] else (low, middle)
    return low


def values_of(text):
    q = lambda **o: quality.GopherQualityFilter(**{**NO_QUALITY, **o})
    r = lambda **o: repetition.GopherRepetitionFilter(**{**NO_REPETITION, **o})
    length = len(text) + 2
    count = smallest_dropped(lambda t: q(min_doc_words=t), text, length, step=1)
    mean = largest_kept(lambda t: q(max_avg_word_length=t), text, length)
    # Hashes and ellipses share a threshold; each is seen in the text without the other. The other characters of the text stay, so the words do.
    values = {
        "min_words": count, "max_words": count, "min_mean_word_length": mean, "max_mean_word_length": mean,
        "hashes_per_word": largest_kept(lambda t: q(max_symbol_word_ratio=t), text, length, "hash"),
        "ellipses_per_word": ellipses(q, text, length),
        "bullet_lines": largest_kept(lambda t: q(max_bullet_lines_ratio=t), text, 2),
        "ellipsis_lines": largest_kept(lambda t: q(max_ellipsis_lines_ratio=t), text, 2),
        "alphabetic_words": smallest_dropped(lambda t: q(max_non_alpha_words_ratio=t), text, 2),
        "stop_words": smallest_dropped(lambda t: q(min_stop_words=t), text, 100, step=1),
        "duplicate_lines": largest_kept(lambda t: r(dup_line_frac=t), text, 2),
        "duplicate_paragraphs": largest_kept(lambda t: r(dup_para_frac=t), text, 2),
        "duplicate_line_characters": largest_kept(lambda t: r(dup_line_char_frac=t), text, 2),
        "duplicate_paragraph_characters": largest_kept(lambda t: r(dup_para_char_frac=t), text, 2),
    }
    for n in (2, 3, 4):
        values[f"top_{n}_gram"] = largest_kept(lambda t: r(top_n_grams=((n, t),)), text, 2)
    for n in range(5, 11):
        values[f"duplicate_{n}_gram"] = largest_kept(lambda t: r(dup_n_grams=((n, t),)), text, 2)
    return values


def ellipses(q, text, high):
    """The hashes become another mark, so that the ellipses alone cross the threshold."""
    return largest_kept(lambda t: q(max_symbol_word_ratio=t), text.replace("#", "@"), high)


VOCABULARY = """the be to of and that have with The That water stone river light house morning window never under between people because language
number system nature country different children example mountain river's don't we\u2019ll e.g. 3.14 1,000 x y 12 2024 caf\u00e9 na\u00efve \u0437\u0435\u043c\u043b\u044f
\u03bb\u03cc\u03b3\u03bf\u03c2 stra\u00dfe \u0939\u093f\u0928\u094d\u0926\u0940 \u6c34 \u65e5\u672c\u8a9e \U0001d54f \U0001f600 \u20ac5 #tag # ... \u2026 -- - \u2022 * ( ) \u00bd \u00b2 a/b
well-known user@host.org \u00abyes\u00bb \u201cquoted\u201d ?! $9.99 \u200bzero e\u0301 \u00ad \ufeff \x01 \x7f""".split()
SPACES = [" "] * 30 + ["  ", "\t", "\u00a0", "\u3000"]
LINE_ENDS = ["\n"] * 12 + ["\n\n"] * 5 + ["\n\n\n", "\r\n", "\r\n\r\n", "\r", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x1f", "\x85", "\u2028", "\u2029", " \n \n"]
STARTS = ["", "", "", "- ", "\u2022 ", "  - ", "* ", "\t\u2022", "-", "-- "]
ENDS = ["", "", "", ".", "...", "\u2026", " ...  ", "....", ". . .", "\u2026."]


def random_text(rng):
    """Lines of random words; some lines, and some runs of words, come again."""
    some = rng.sample(VOCABULARY, rng.randint(3, len(VOCABULARY)))
    plain = rng.random()
    lines, text = [], rng.choice(["", "", "", "\n", "\n\n ", " "])
    for _ in range(rng.randint(1, 40)):
        if lines and rng.random() < 0.3:
            line = rng.choice(lines)
        else:
            words = [rng.choice(some) for _ in range(rng.randint(0, 14))]
            if lines and rng.random() < 0.4:
                old = rng.choice(lines).split(" ")
                at = rng.randrange(len(old))
                words[len(words) // 2:len(words) // 2] = old[at:at + rng.randint(2, 12)]
            line = "".join(w + (" " if rng.random() < plain else rng.choice(SPACES)) for w in words).rstrip(" ")
            line = rng.choice(STARTS) + line + rng.choice(ENDS)
        lines.append(line)
        text += line + rng.choice(LINE_ENDS if rng.random() > plain else ["\n", "\n", "\n\n"])
    return text if rng.random() < 0.5 else text.rstrip()


PROSE = [
    """The harbour was quiet that morning, and the boats lay still on the grey water. Nobody had slept well; the storm of the night before had
torn two of them from their moorings, and what was left of the smaller one - a few planks, a rope, half an oar - now drifted along the wall.
"We'll have to tell him," said Anna, but she did not move. It's hard to bring bad news to a man who has little else.

In the afternoon the wind turned to the east. They mended the nets, counted the boxes (there were 17 of them, at 3.5 kg each), and waited for the
doctor, who had promised to come with the 4:30 ferry. He came at six, wet to the skin, laughing, and with a parcel under his arm.""",
    """Der Fluss f\u00fchrte in diesem Fr\u00fchjahr so viel Wasser, dass die untere Stra\u00dfe drei Wochen lang gesperrt blieb. Die Leute nahmen es gelassen \u2013
man kannte das. \u201eIm n\u00e4chsten Jahr\u201c, sagte der Wirt, \u201ebauen wir h\u00f6her.\u201c Er sagte es jedes Jahr\u2026""",
    """Release notes, version 2.7

- the importer reads gzip files
- the importer reads folders
- faster start (1.2 s, was 4.8 s)
- fixes: #412, #415, #420, #431 and #433
- known problems: see issue #440 ...

- Thanks to all that have helped with the tests, and to those that will be with us next time.
""",
    "\u041d\u0430 \u0441\u0442\u0430\u043d\u0446\u0438\u0438 \u0431\u044b\u043b\u043e \u0442\u0438\u0445\u043e. \u041f\u043e\u0435\u0437\u0434 \u043e\u043f\u0430\u0437\u0434\u044b\u0432\u0430\u043b \u043d\u0430 \u0447\u0430\u0441, \u0438 \u0434\u0435\u0436\u0443\u0440\u043d\u044b\u0439 \u0434\u0440\u0435\u043c\u0430\u043b \u0443 \u043e\u043a\u043d\u0430.",
    "int main() { for (int i = 0; i < n; i++) { sum += a[i] * b[i]; } return sum == 0 ? 1 : 0; }\n" * 3,
    "Home | About | Contact\n" + "Buy now! Best price! Buy now! Best price!\n\n" * 5 + "Home | About | Contact\n",
    "to be or not to be that is the question whether it is nobler to be or not to be that is the question " * 2,
    "a", "", "\n\n\n", "...", "- ", "a b", "x\n\nx", "same\nsame", "one two three four five one two three four five",
]


def main():
    if sys.argv[1:2] == ["--check"]:
        return check(sys.argv[2])
    rng = random.Random(20211208)
    with open("filter_cases.jsonl", "w") as out:
        for text in PROSE + [random_text(rng) for _ in range(60)]:
            values = {k: round(v, 10) for k, v in values_of(text).items()} if words_of(text) else {}
            out.write(json.dumps({"text": text, "values": values}) + "\n")


def check(path):
    documents = differences = 0
    worst = 0.0
    for line in open(path):
        record = json.loads(line)
        if not words_of(record["text"]):
            continue
        expected = values_of(record["text"])
        documents += 1
        for name, value in expected.items():
            error = abs(value - record["values"][name])
            worst = max(worst, error if error < 1e-9 else 0)
            if error >= 1e-9:
                differences += 1
                print(documents, name, "datatrove", value, "clover", record["values"][name], repr(record["text"][:60]))
    print(documents, "documents,", differences, "differences; the others agree to", worst)


if __name__ == "__main__":
    main()

// Cuts a manual in plain text into documents at its section headings.
#pragma once
#include <string_view>
#include <vector>

namespace clover {

/// The documents of `text`, in order and without a gap: put together they are `text` again. A document starts at a heading and
/// holds whole sections, as many as it takes to reach `least` bytes; a longer section is cut between paragraphs so that no piece
/// exceeds `most` (between lines, or anywhere, where it has none). What is left at the end joins the document before if both fit.
/// A heading stands at the start of a line, between blank lines, and is "2.1.3. Title" or, with a word in front, "Chapter 2. Title"
/// or "第 2 章 Title"; so a table of contents, whose lines follow each other, is one section.
std::vector<std::string_view> cut_manual(std::string_view text, size_t least = 2'000, size_t most = 20'000);

/// Whether `line`, which stands between blank lines, is a heading.
bool is_heading(std::string_view line);

}  // namespace clover

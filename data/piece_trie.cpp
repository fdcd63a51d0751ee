#include "piece_trie.h"

#include <algorithm>

namespace clover {
namespace {

constexpr uint32_t block_nodes = 256, most_failures = 32, most_open = 16;

size_t common_prefix(std::string_view a, std::string_view b) {
    return size_t(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}

}  // namespace

size_t PieceTrie::count_nodes(std::vector<Entry>& entries) {
    std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.text < b.text; });
    size_t count = 1;
    std::string_view before;
    for (const Entry& entry : entries) {
        count += entry.text.size() - common_prefix(before, entry.text);
        before = entry.text;
    }
    return count;
}

PieceTrie::PieceTrie(std::vector<Entry> entries) {
    const size_t count = count_nodes(entries);
    nodes_.reserve(count + count / 4 + block_nodes);
    nodes_.resize(block_nodes);
    nodes_[root].parent = root;
    open_.push_back({});
    if (!entries.empty()) add_children(entries, 0, entries.size(), 0, root);
    nodes_[root].parent = free_node;  // the root is no child, also not of itself
    open_ = {};
}

/// Entries [first, last) begin with the `depth` bytes that lead to `node`.
void PieceTrie::add_children(const std::vector<Entry>& entries, size_t first, size_t last, size_t depth, uint32_t node) {
    if (entries[first].text.size() == depth) nodes_[node].id = entries[first++].id;
    if (first == last) return;
    const auto byte_of = [&](size_t i) { return static_cast<unsigned char>(entries[i].text[depth]); };
    std::vector<unsigned char> bytes;
    for (size_t i = first; i < last; i++)
        if (bytes.empty() || bytes.back() != byte_of(i)) bytes.push_back(byte_of(i));
    const uint32_t base = find_base(bytes);
    nodes_[node].base = base;
    for (unsigned char byte : bytes) nodes_[base ^ byte].parent = node;
    for (size_t end = first; first < last; first = end) {
        while (end < last && byte_of(end) == byte_of(first)) end++;
        add_children(entries, first, end, depth + 1, base ^ byte_of(first));
    }
}

/// A base for children over these bytes. A block that has failed some times is closed, so that all searches together take time linear in the nodes.
uint32_t PieceTrie::find_base(const std::vector<unsigned char>& bytes) {
    for (size_t i = 0; i < open_.size(); i++) {
        for (uint32_t at = open_[i].first; at < open_[i].first + block_nodes; at++)
            if (fits(at ^ bytes[0], bytes)) return at ^ bytes[0];
        if (++open_[i].failures >= most_failures) open_.erase(open_.begin() + std::ptrdiff_t(i--));
    }
    if (open_.size() >= most_open) open_.erase(open_.begin());
    open_.push_back({uint32_t(nodes_.size())});
    nodes_.resize(nodes_.size() + block_nodes);
    return open_.back().first ^ bytes[0];
}

bool PieceTrie::fits(uint32_t base, const std::vector<unsigned char>& bytes) const {
    return base != 0 && std::all_of(bytes.begin(), bytes.end(), [&](unsigned char byte) { return nodes_[base ^ byte].parent == free_node; });
}

size_t PieceTrie::longest(std::string_view text, size_t at) const {
    size_t length = 0;
    uint32_t node = root;
    for (size_t i = at; i < text.size(); i++) {
        node = next(node, static_cast<unsigned char>(text[i]));
        if (node == root) break;
        if (nodes_[node].id >= 0) length = i + 1 - at;
    }
    return length;
}

}  // namespace clover

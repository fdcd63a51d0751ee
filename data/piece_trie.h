// A set of byte strings as a trie, to find all of those that a text begins with at some place. Stored as a double array (Aoe 1989): the child of a node over
// byte c lies at base XOR c, if the node there names this one as its parent.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

namespace clover {

class PieceTrie {
public:
    struct Entry {
        std::string_view text;  // not empty, without zero bytes
        int32_t id = -1;
    };
    static constexpr uint32_t root = 0;
    static constexpr size_t most_nodes = size_t{1} << 21;

    /// The trie of no strings.
    PieceTrie() : PieceTrie(std::vector<Entry>()) {}
    /// The entries' texts differ. Takes memory for at most most_nodes nodes of 12 bytes and a quarter more.
    explicit PieceTrie(std::vector<Entry> entries);
    /// How many nodes the trie of these has; sorts them.
    static size_t count_nodes(std::vector<Entry>& entries);

    bool empty() const { return nodes_[root].base == 0; }
    /// The node after `node` and a byte; root: no string goes on like that.
    uint32_t next(uint32_t node, unsigned char byte) const {
        const uint32_t child = nodes_[node].base ^ byte;
        return nodes_[child].parent == node ? child : root;
    }
    /// The id of the string that ends at the node, or -1.
    int32_t id(uint32_t node) const { return nodes_[node].id; }
    /// Bytes of the longest string that text.substr(at) begins with; 0: none.
    size_t longest(std::string_view text, size_t at) const;

private:
    struct Node {
        uint32_t base = 0, parent = free_node;  // 0: no children, and then no node names this one as its parent
        int32_t id = -1;
    };
    static constexpr uint32_t free_node = 0xffffffff;

    /// While building: 256 nodes with the same upper bits, where a node's children lie together.
    struct Block {
        uint32_t first = 0, failures = 0;
    };
    void add_children(const std::vector<Entry>& entries, size_t first, size_t last, size_t depth, uint32_t node);
    uint32_t find_base(const std::vector<unsigned char>& bytes);
    bool fits(uint32_t base, const std::vector<unsigned char>& bytes) const;

    std::vector<Node> nodes_;
    std::vector<Block> open_;  // while building: the blocks that children are still put into
};

}  // namespace clover

#include "tokenizer.h"

#include "../kernels/error.h"

namespace clover {
namespace {

class ByteTokenizer final : public Tokenizer {
public:
    void encode(std::string_view text, std::vector<int32_t>& ids) const override {
        const unsigned char* bytes = reinterpret_cast<const unsigned char*>(text.data());
        ids.insert(ids.end(), bytes, bytes + text.size());
    }
    std::string token_bytes(int32_t id) const override {
        CLOVER_CHECK(id >= 0 && id < vocab_size(), "token ", id);
        return id < 256 ? std::string(1, char(id)) : std::string();
    }
    int32_t vocab_size() const override { return 257; }
    int32_t end_of_document() const override { return 256; }
    std::string fingerprint() const override { return "bytes"; }
};

}  // namespace

std::unique_ptr<Tokenizer> load_tokenizer(const std::string& spec) {
    require(spec == "bytes", "tokenizer \"", spec, "\" is not supported; use \"bytes\" (ids 0 to 255 are the bytes, 256 ends a document)");
    return std::make_unique<ByteTokenizer>();
}

}  // namespace clover

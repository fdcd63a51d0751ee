// What a SentencePiece .model holds: the proto2 message ModelProto (google/sentencepiece, sentencepiece_model.proto), the part that encoding and decoding need.
//   ModelProto      1 pieces (repeated; a piece's id is its place) · 2 trainer_spec · 3 normalizer_spec · 5 denormalizer_spec
//   SentencePiece   1 piece · 2 score (float) · 3 type, NORMAL where absent
//   TrainerSpec     3 model_type · 24 treat_whitespace_as_suffix · 35 byte_fallback · 44 unk_surface
//   NormalizerSpec  1 name · 2 precompiled_charsmap · 3 add_dummy_prefix · 4 remove_extra_whitespaces · 5 escape_whitespaces
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace clover {

constexpr std::string_view space_symbol = "\xe2\x96\x81";  // U+2581, how pieces spell a space

struct SentencePiece {
    enum class Type : uint8_t { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };
    std::string_view text;
    float score = 0;
    Type type = Type::normal;
    /// Whether text can become this piece by its spelling.
    bool in_text() const { return type == Type::normal || type == Type::user_defined || type == Type::unused; }
};

struct NormalizerSpec {
    std::string_view name, charsmap;
    size_t charsmap_at = 0;  // its first byte in the file
    bool add_dummy_prefix = true, remove_extra_whitespaces = true, escape_whitespaces = true;
};

/// Views point into the file's contents.
struct SentencePieceModel {
    enum class Kind : uint8_t { unigram = 1, bpe = 2, word = 3, character = 4 };
    Kind kind = Kind::unigram;
    bool whitespace_as_suffix = false, byte_fallback = false;
    std::string_view unknown_surface = " \xe2\x81\x87 ";  // what decoding shows for the unknown piece
    NormalizerSpec normalizer, denormalizer;
    std::vector<SentencePiece> pieces;
    int32_t unknown_id = -1;
    std::array<int32_t, 256> byte_ids{};  // with byte_fallback: the piece of each byte
    size_t longest = 0;                   // bytes of the longest piece
};

/// Throws InputError for what is no such file or breaks a rule that the reference program checks: no empty piece, one UNKNOWN, BYTE pieces with byte_fallback
/// and then all 256. Limits of ours: a piece is UTF-8 of at most 1024 bytes without zero bytes, a model
/// has at most 1,048,576 pieces, scores are finite.
SentencePieceModel parse_sentencepiece_model(std::string_view contents, const std::string& origin);

/// The byte that a BYTE piece <0x00> … <0xFF> spells; -1: it spells none.
int spelled_byte(std::string_view piece);

/// For messages: in quotation marks, shortened, on one line.
std::string quoted_piece(std::string_view piece);

}  // namespace clover

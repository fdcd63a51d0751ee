#include "sentencepiece_model.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "../kernels/error.h"
#include "protobuf.h"
#include "utf8.h"

namespace clover {
namespace {

constexpr size_t most_pieces = size_t{1} << 20, longest_piece = 1024;

using Type = SentencePiece::Type;
using Kind = SentencePieceModel::Kind;

// Each parse_… adds to what an earlier occurrence of the same message has set, as protocol buffers merge them.

SentencePiece parse_piece(std::string_view message, size_t offset, const std::string& origin) {
    SentencePiece piece;
    for (ProtobufReader reader(message, offset, origin); reader.next();) {
        switch (reader.field()) {
            case 1: piece.text = reader.bytes(); break;
            case 2: piece.score = reader.float32(); break;
            case 3:
                require(reader.varint() >= 1 && reader.varint() <= 6, origin, ": byte ", reader.offset(), ": piece type ", reader.varint(),
                        " is not known, expected 1 (normal) to 6 (byte)");
                piece.type = Type(reader.varint());
                break;
        }
    }
    return piece;
}

void parse_trainer_spec(std::string_view message, size_t offset, const std::string& origin, SentencePieceModel& model) {
    for (ProtobufReader reader(message, offset, origin); reader.next();) {
        switch (reader.field()) {
            case 3:
                require(reader.varint() >= 1 && reader.varint() <= 4, origin, ": byte ", reader.offset(), ": model_type ", reader.varint(),
                        " is not known, expected 1 (unigram), 2 (BPE), 3 (word) or 4 (character)");
                model.kind = Kind(reader.varint());
                break;
            case 24: model.whitespace_as_suffix = reader.boolean(); break;
            case 35: model.byte_fallback = reader.boolean(); break;
            case 44: model.unknown_surface = reader.bytes(); break;
        }
    }
}

void parse_normalizer_spec(std::string_view message, size_t offset, const std::string& origin, NormalizerSpec& spec) {
    for (ProtobufReader reader(message, offset, origin); reader.next();) {
        switch (reader.field()) {
            case 1: spec.name = reader.bytes(); break;
            case 2:
                spec.charsmap = reader.bytes();
                spec.charsmap_at = reader.offset();
                break;
            case 3: spec.add_dummy_prefix = reader.boolean(); break;
            case 4: spec.remove_extra_whitespaces = reader.boolean(); break;
            case 5: spec.escape_whitespaces = reader.boolean(); break;
        }
    }
}

/// Counted first, so that the table of pieces is allocated once.
size_t count_pieces(std::string_view contents, const std::string& origin) {
    size_t count = 0;
    for (ProtobufReader reader(contents, 0, origin); reader.next();) count += reader.field() == 1;
    require(count > 0, origin, ": holds no pieces, so it is no SentencePiece .model; expected a file that spm_train wrote");
    require(count <= most_pieces, origin, ": ", count, " pieces, at most ", most_pieces, " are supported");
    return count;
}

/// The byte pieces' ids, and that they are there if and only if byte_fallback asks for them.
void check_byte_pieces(SentencePieceModel& model, const std::string& origin) {
    model.byte_ids.fill(-1);
    for (size_t id = 0; id < model.pieces.size(); id++) {
        const SentencePiece& piece = model.pieces[id];
        if (piece.type != Type::byte) continue;
        require(model.byte_fallback, origin, ": piece ", id, ", ", quoted_piece(piece.text), ", is a byte piece, but trainer_spec.byte_fallback is false");
        const int byte = spelled_byte(piece.text);
        require(byte >= 0, origin, ": piece ", id, ", ", quoted_piece(piece.text), ", is a byte piece, expected one of <0x00> to <0xFF>");
        model.byte_ids[size_t(byte)] = int32_t(id);
    }
    for (int byte = 0; byte < 256 && model.byte_fallback; byte++)
        require(model.byte_ids[size_t(byte)] >= 0, origin, ": trainer_spec.byte_fallback is true, but the piece of byte ", byte, " is missing");
}

void check_pieces(SentencePieceModel& model, const std::string& origin) {
    for (size_t id = 0; id < model.pieces.size(); id++) {
        const SentencePiece& piece = model.pieces[id];
        require(!piece.text.empty(), origin, ": piece ", id, " is empty, expected at least one character");
        require(piece.text.size() <= longest_piece, origin, ": piece ", id, ", ", quoted_piece(piece.text), ", has ", piece.text.size(), " bytes, at most ",
                longest_piece, " are supported");
        require(piece.text.find('\0') == std::string_view::npos, origin, ": piece ", id, ", ", quoted_piece(piece.text), ", holds a zero byte, which is not supported");
        require(is_utf8(piece.text), origin, ": piece ", id, ", ", quoted_piece(piece.text), ", is not UTF-8, which is not supported");
        require(std::isfinite(piece.score), origin, ": piece ", id, ", ", quoted_piece(piece.text), ", has the score ", piece.score, ", expected a finite number");
        model.longest = std::max(model.longest, piece.text.size());
        if (piece.type != Type::unknown) continue;
        require(model.unknown_id < 0, origin, ": pieces ", model.unknown_id, " and ", id, " are both of type UNKNOWN, expected one");
        model.unknown_id = int32_t(id);
    }
    require(model.unknown_id >= 0, origin, ": no piece is of type UNKNOWN, expected one");
    check_byte_pieces(model, origin);
}

}  // namespace

SentencePieceModel parse_sentencepiece_model(std::string_view contents, const std::string& origin) {
    SentencePieceModel model;
    model.pieces.reserve(count_pieces(contents, origin));
    for (ProtobufReader reader(contents, 0, origin); reader.next();) {
        switch (reader.field()) {
            case 1: model.pieces.push_back(parse_piece(reader.bytes(), reader.offset(), origin)); break;
            case 2: parse_trainer_spec(reader.bytes(), reader.offset(), origin, model); break;
            case 3: parse_normalizer_spec(reader.bytes(), reader.offset(), origin, model.normalizer); break;
            case 5: parse_normalizer_spec(reader.bytes(), reader.offset(), origin, model.denormalizer); break;
        }
    }
    check_pieces(model, origin);
    return model;
}

int spelled_byte(std::string_view piece) {
    constexpr std::string_view digits = "0123456789ABCDEF";
    if (piece.size() != 6 || !piece.starts_with("<0x") || piece[5] != '>') return -1;
    const size_t high = digits.find(piece[3]), low = digits.find(piece[4]);
    return high == std::string_view::npos || low == std::string_view::npos ? -1 : int(high * 16 + low);
}

std::string quoted_piece(std::string_view piece) {
    constexpr size_t shown = 40;
    std::string out = "\"";
    for (size_t at = 0; at < piece.size();) {
        if (at >= shown) {
            out += "…";
            break;
        }
        const Utf8Character c = utf8_at(piece, at);
        if (c.valid && c.code >= 0x20 && c.code != 0x7f) {
            out += piece.substr(at, c.length);
        } else {
            char hex[5];
            std::snprintf(hex, sizeof hex, "\\x%02x", static_cast<unsigned char>(piece[at]));
            out += hex;
        }
        at += c.valid ? c.length : 1;
    }
    return out + '"';
}

}  // namespace clover

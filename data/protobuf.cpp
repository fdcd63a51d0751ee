#include "protobuf.h"

#include <bit>
#include <cstring>

#include "../kernels/error.h"

namespace clover {

static_assert(std::endian::native == std::endian::little);

bool ProtobufReader::next() {
    if (at_ == message_.size()) return false;
    key_at_ = at_;
    const uint64_t key = read_varint();
    require(key >> 3 >= 1 && key >> 3 <= 0x1fffffff, origin_, ": byte ", offset_ + key_at_, ": a field with the number ", key >> 3,
            ", expected 1 to 536870911; the file is damaged or no protocol buffer");
    field_ = uint32_t(key >> 3);
    wire_type_ = uint32_t(key & 7);
    value_at_ = at_;
    switch (wire_type_) {
        case 0: varint_ = read_varint(); break;
        case 1: bytes_ = take(8); break;
        case 2: {
            const uint64_t length = read_varint();
            value_at_ = at_;
            bytes_ = take(length);
            break;
        }
        case 5: bytes_ = take(4); break;
        default:
            throw InputError(text(origin_, ": byte ", offset_ + key_at_, ": field ", field_, " has wire type ", wire_type_,
                                  ", expected 0, 1, 2 or 5; the file is damaged or no protocol buffer"));
    }
    return true;
}

uint64_t ProtobufReader::read_varint() {
    const size_t begin = at_;
    uint64_t value = 0;
    for (uint32_t shift = 0; shift < 70; shift += 7) {
        require(at_ < message_.size(), origin_, ": byte ", offset_ + begin, ": a number is cut short by the end of its message; the file is damaged or not whole");
        const unsigned char c = static_cast<unsigned char>(message_[at_++]);
        value |= uint64_t(c & 0x7f) << shift;
        if (c < 0x80) return value;
    }
    throw InputError(text(origin_, ": byte ", offset_ + begin, ": a number of more than 10 bytes; the file is damaged or no protocol buffer"));
}

std::string_view ProtobufReader::take(uint64_t count) {
    require(count <= message_.size() - at_, origin_, ": byte ", offset_ + key_at_, ": field ", field_, " has ", count, " bytes, but its message only ",
            message_.size() - at_, " more; the file is damaged or not whole");
    const std::string_view bytes = message_.substr(at_, size_t(count));
    at_ += size_t(count);
    return bytes;
}

void ProtobufReader::expect(uint32_t wire_type) const {
    require(wire_type_ == wire_type, origin_, ": byte ", offset_ + key_at_, ": field ", field_, " has wire type ", wire_type_, ", expected ", wire_type,
            "; the file is damaged or of another kind");
}

uint64_t ProtobufReader::varint() const {
    expect(0);
    return varint_;
}

float ProtobufReader::float32() const {
    expect(5);
    float value;
    std::memcpy(&value, bytes_.data(), sizeof value);
    return value;
}

std::string_view ProtobufReader::bytes() const {
    expect(2);
    return bytes_;
}

}  // namespace clover

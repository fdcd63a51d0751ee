// Reader of the protocol-buffer wire format (protobuf.dev/programming-guides/encoding): a message is a run of fields, each a key and a value.
//   key     varint: field number << 3 | wire type
//   value   type 0: varint, 7 bits a byte, lowest first · 1: 8 bytes · 2: varint length, then as many bytes (string, bytes, message) · 5: 4 bytes
// Groups (types 3 and 4), long out of use, are refused. A field that the caller does not know is read over.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace clover {

class ProtobufReader {
public:
    /// `message` starts at byte `offset` of the file that `origin` names; both must outlive the reader. Errors are InputError with the byte's offset.
    ProtobufReader(std::string_view message, size_t offset, const std::string& origin) : message_(message), offset_(offset), origin_(origin) {}
    /// Reads the next field; false at the end of the message.
    bool next();
    uint32_t field() const { return field_; }
    /// Where the value of the field begins in the file.
    size_t offset() const { return offset_ + value_at_; }

    // The value; it must be of that type. A message's fields are read by a reader of bytes() and offset().
    uint64_t varint() const;
    bool boolean() const { return varint() != 0; }
    float float32() const;
    std::string_view bytes() const;

private:
    uint64_t read_varint();
    std::string_view take(uint64_t count);
    void expect(uint32_t wire_type) const;

    std::string_view message_;
    size_t offset_;
    const std::string& origin_;
    size_t at_ = 0, key_at_ = 0, value_at_ = 0;
    uint32_t field_ = 0, wire_type_ = 0;
    uint64_t varint_ = 0;
    std::string_view bytes_;
};

}  // namespace clover

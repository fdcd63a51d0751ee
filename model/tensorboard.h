// TensorBoard event files: the curves of a run as TensorBoard and its readers know them, written while it trains.
//
// A file OUT/tensorboard/events.out.tfevents.SECONDS.HOST is a run of records in TensorFlow's framing (tensorflow/core/lib/io/record_writer.h),
// numbers little-endian:
//   u64  length    of data
//   u32  checksum  of the 8 bytes of length
//   ...  data      length bytes: one Event
//   u32  checksum  of data
// checksum = ((crc >> 15 | crc << 17) + 0xa282ead8) mod 2^32, crc the CRC-32C of RFC 3720 appendix B.4: a CRC stored next to what it is of must not
// be the CRC of both.
// An Event in the protocol-buffer wire format (data/protobuf.h; tensorflow/core/util/event.proto, summary.proto), a key before each value:
//   09  f64     wall_time, seconds since 1970
//   10  varint  step
//   1a  string  file_version: "brain.Event:2", only and always in the first record
//   2a  bytes   Summary: for each scalar
//         0a  bytes   Value:  0a string tag,  15 f32 simple_value
//   3a  bytes   SessionLog:  08 varint status: 1 START
// The second record is a START with the first step of this session: readers drop points of older files from that step on, which a run that was killed
// and resumed writes again. A file cut off anywhere is read up to its last whole record.
#pragma once
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

namespace clover {

struct Scalar {
    std::string tag;  // "train/loss": what stands before the slash groups the charts
    double value;
};

uint32_t crc32c(std::string_view bytes);
// Whole records.
std::string version_record(double wall_time);
std::string start_record(double wall_time, int64_t first_step);
std::string scalars_record(double wall_time, int64_t step, const std::vector<Scalar>& scalars);

class TensorboardWriter {
public:
    /// Begins a new file in `folder`, named to follow those in it. The session's steps begin at first_step.
    TensorboardWriter(const std::string& folder, int64_t first_step);
    ~TensorboardWriter();
    TensorboardWriter(const TensorboardWriter&) = delete;

    /// Buffered; on its way to the disk two seconds later at the next call. Throws Error when the disk is full.
    void add(int64_t step, const std::vector<Scalar>& scalars);
    /// What was added is on the disk.
    void sync();

private:
    std::string path_;
    std::FILE* file_;
    std::chrono::steady_clock::time_point flushed_;
    void write(const std::string& record);
    void check(bool ok) const;
};

}  // namespace clover

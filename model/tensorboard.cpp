#include "tensorboard.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>

#include "../kernels/error.h"

namespace clover {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::string_view name_start = "events.out.tfevents.";

template <class T>
void append_raw(std::string& to, T x) {
    to.append(reinterpret_cast<const char*>(&x), sizeof x);
}
void append_varint(std::string& to, uint64_t x) {
    for (; x >= 128; x >>= 7) to += char(x | 128);
    to += char(x);
}
// A value of wire type 2 under its key.
void append_bytes(std::string& to, char key, std::string_view bytes) {
    to += key;
    append_varint(to, bytes.size());
    to += bytes;
}

std::string event(double wall_time) {
    std::string e = "\x09";
    append_raw(e, wall_time);
    return e;
}
std::string event(double wall_time, int64_t step) {
    std::string e = event(wall_time) + '\x10';
    append_varint(e, uint64_t(step));
    return e;
}

uint32_t masked(uint32_t crc) { return (crc >> 15 | crc << 17) + 0xa282ead8u; }

std::string framed(const std::string& data) {
    std::string r;
    append_raw(r, uint64_t(data.size()));
    append_raw(r, masked(crc32c(r)));
    r += data;
    append_raw(r, masked(crc32c(data)));
    return r;
}

// Castagnoli's polynomial, bits reversed.
constexpr std::array<uint32_t, 256> crc_table = [] {
    std::array<uint32_t, 256> table{};
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t x = byte;
        for (int bit = 0; bit < 8; bit++) x = x >> 1 ^ (x & 1 ? 0x82f63b78u : 0);
        table[byte] = x;
    }
    return table;
}();

// Readers take the files of a folder in the order of their names: a second session within the same second takes the next one.
int64_t next_seconds(const std::string& folder) {
    int64_t seconds = std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
        const std::string name = entry.path().filename().string();
        int64_t taken = 0;
        if (!name.starts_with(name_start)) continue;
        std::from_chars(name.data() + name_start.size(), name.data() + name.size(), taken);
        if (taken < 9999999999) seconds = std::max(seconds, taken + 1);
    }
    return seconds;
}

std::string host_name() {
    char name[256] = "host";
    if (gethostname(name, sizeof name - 1) != 0 || name[0] == 0) return "host";
    std::string host = name;
    std::replace(host.begin(), host.end(), '/', '-');
    return host;
}

double now() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

}  // namespace

uint32_t crc32c(std::string_view bytes) {
    uint32_t crc = ~0u;
    for (unsigned char byte : bytes) crc = crc >> 8 ^ crc_table[(crc ^ byte) & 255];
    return ~crc;
}

std::string version_record(double wall_time) {
    std::string e = event(wall_time);
    append_bytes(e, '\x1a', "brain.Event:2");
    return framed(e);
}

std::string start_record(double wall_time, int64_t first_step) {
    std::string e = event(wall_time, first_step);
    append_bytes(e, '\x3a', "\x08\x01");
    return framed(e);
}

std::string scalars_record(double wall_time, int64_t step, const std::vector<Scalar>& scalars) {
    std::string summary;
    for (const Scalar& s : scalars) {
        std::string value;
        append_bytes(value, '\x0a', s.tag);
        value += '\x15';
        append_raw(value, float(s.value));
        append_bytes(summary, '\x0a', value);
    }
    std::string e = event(wall_time, step);
    append_bytes(e, '\x2a', summary);
    return framed(e);
}

TensorboardWriter::TensorboardWriter(const std::string& folder, int64_t first_step) : flushed_(std::chrono::steady_clock::now()) {
    std::filesystem::create_directories(folder);
    path_ = folder + "/" + std::string(name_start) + std::to_string(next_seconds(folder)) + "." + host_name();
    file_ = std::fopen(path_.c_str(), "wbx");
    check(file_ != nullptr);
    write(version_record(now()) + start_record(now(), first_step));
    check(std::fflush(file_) == 0);
}

TensorboardWriter::~TensorboardWriter() { std::fclose(file_); }

void TensorboardWriter::check(bool ok) const {
    if (!ok) throw Error(text(path_, ": cannot be written: ", std::strerror(errno), "; free some space and continue with --resume"));
}

void TensorboardWriter::write(const std::string& record) { check(std::fwrite(record.data(), 1, record.size(), file_) == record.size()); }

void TensorboardWriter::add(int64_t step, const std::vector<Scalar>& scalars) {
    write(scalars_record(now(), step, scalars));
    const auto time = std::chrono::steady_clock::now();
    if (time - flushed_ < std::chrono::seconds(2)) return;
    flushed_ = time;
    check(std::fflush(file_) == 0);
}

void TensorboardWriter::sync() {
    check(std::fflush(file_) == 0 && fsync(fileno(file_)) == 0);
    flushed_ = std::chrono::steady_clock::now();
}

}  // namespace clover

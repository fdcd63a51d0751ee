// TensorBoard event files: against bytes made by the package tensorboard (golden/make_tensorboard.py); and what a run leaves there, also cut off and resumed.
#include "../model/tensorboard.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "../data/protobuf.h"
#include "../model/run_log.h"
#include "training_run.h"

using namespace clover;
using namespace clover::test;

namespace {

std::string bytes(std::initializer_list<int> list) { return {list.begin(), list.end()}; }

/// The whole records of a file, their checksums verified.
std::vector<std::string> records_of(const std::string& file) {
    std::vector<std::string> all;
    const auto sum = [](std::string_view b) { return ((crc32c(b) >> 15) | (crc32c(b) << 17)) + 0xa282ead8u; };
    for (size_t at = 0; at + 16 <= file.size();) {
        uint64_t length;
        uint32_t length_sum, data_sum;
        std::memcpy(&length, &file[at], 8), std::memcpy(&length_sum, &file[at + 8], 4);
        REQUIRE(length_sum == sum({&file[at], 8}));
        if (at + 16 + length > file.size()) break;
        const std::string_view data(&file[at + 12], length);
        std::memcpy(&data_sum, &file[at + 12 + length], 4);
        REQUIRE(data_sum == sum(data));
        all.emplace_back(data);
        at += 16 + length;
    }
    return all;
}

struct Event {
    int64_t step = 0;
    bool version = false, start = false;
    std::map<std::string, float> scalars;
};

Event parse(const std::string& record) {
    const std::string origin = "record";
    Event e;
    for (ProtobufReader event(record, 0, origin); event.next();) {
        if (event.field() == 2) e.step = int64_t(event.varint());
        if (event.field() == 3) e.version = event.bytes() == "brain.Event:2";
        if (event.field() == 7) e.start = event.bytes() == bytes({8, 1});
        if (event.field() != 5) continue;
        for (ProtobufReader summary(event.bytes(), 0, origin); summary.next();) {
            std::string tag;
            for (ProtobufReader value(summary.bytes(), 0, origin); value.next();) value.field() == 1 ? void(tag = value.bytes()) : void(e.scalars[tag] = value.float32());
        }
    }
    return e;
}

/// The files of a run's folder by name.
std::map<std::string, std::vector<Event>> events_of(const TemporaryFolder& folder) {
    std::map<std::string, std::vector<Event>> all;
    for (const auto& entry : std::filesystem::directory_iterator(folder / "run/tensorboard")) {
        const std::string name = entry.path().filename().string();
        for (const std::string& r : records_of(folder.contents("run/tensorboard/" + name))) all[name].push_back(parse(r));
    }
    return all;
}

/// What a reader shows of a tag: a START drops what older files have from its step on.
std::vector<std::pair<int64_t, float>> curve(const TemporaryFolder& folder, const std::string& tag) {
    std::vector<std::pair<int64_t, float>> points;
    for (const auto& [name, events] : events_of(folder))
        for (const Event& e : events) {
            if (e.start) std::erase_if(points, [&](const auto& p) { return p.first >= e.step; });
            if (const auto found = e.scalars.find(tag); found != e.scalars.end()) points.emplace_back(e.step, found->second);
        }
    return points;
}

StepReport report(int64_t step, double loss) {
    return {.progress = {step, step, step}, .loss = loss, .bits_per_byte = loss / 2, .grad_norm = 3, .lr = 0.25, .seconds = 0.5, .tokens_per_s = 40, .flops = 1e9};
}

TEST_SUITE("tensorboard") {
    TEST_CASE("CRC-32C: the examples of RFC 3720 B.4") {
        std::string up(32, 0), down(32, 0);
        for (int i = 0; i < 32; i++) up[size_t(i)] = char(i), down[size_t(i)] = char(31 - i);
        CHECK(crc32c(std::string(32, 0)) == 0x8a9136aau);
        CHECK(crc32c(std::string(32, char(0xff))) == 0x62a8ab43u);
        CHECK(crc32c(up) == 0x46dd794eu);
        CHECK(crc32c(down) == 0x113fdb5cu);
        // An iSCSI SCSI Read (10) command.
        CHECK(crc32c(bytes({0x01, 0xc0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x14, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0x14, 0, 0, 0, 0x18,
                            0x28, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0})) == 0xd9963a56u);
        CHECK(crc32c("123456789") == 0xe3069283u);  // the check value of the catalogues
    }
    TEST_CASE("the bytes of the package tensorboard") {
        std::ifstream in(std::filesystem::path(__FILE__).parent_path() / "golden/tensorboard-events.tfevents", std::ios::binary);
        const std::string golden(std::istreambuf_iterator<char>(in), {});
        REQUIRE(golden.size() > 400);
        const auto scalars = [](int64_t step, const std::vector<Scalar>& list) { return scalars_record(1764547201.0 + double(step) / 1024, step, list); };
        const std::string ours = version_record(1764547200.25) + start_record(1764547200.5, 1) + scalars(1, {{"train/loss", 5.5}, {"train/lr", 6e-5}}) +
                                 scalars(300, {{"valid/en/bits_per_byte", 0}, {"train/loss", NAN}, {"train/grad_norm", INFINITY}}) +
                                 scalars(5000000000, {{"update/" + std::string(200, 'x'), -1.25}}) + scalars(5000000001, {});
        CHECK(ours == golden);
    }
    TEST_CASE("a run's curves; a resumed run writes a second file that replaces what came after the checkpoint") {
        TemporaryFolder folder;
        const Config c = tiny_config("bloom", {"train.steps=100", "train.log_every=1000"});
        {
            RunLog log(folder / "run", c, 0, 1e10);
            for (int64_t step = 1; step <= 6; step++) log.step(report(step, double(step)));
            log.validation({4, 4, 4}, {{"en", 10, 20, 1.5, 0.75}, {"fr", 10, 20, 2.5, 1.25}});
        }
        {
            RunLog log(folder / "run", c, 4, 1e10);
            for (int64_t step = 5; step <= 7; step++) log.step(report(step, 10 + double(step)));
        }
        const auto files = events_of(folder);
        REQUIRE(files.size() == 2);
        for (const auto& [name, events] : files) {
            CHECK(name.starts_with("events.out.tfevents."));
            CHECK(events[0].version);
            CHECK(events[1].start);
        }
        CHECK(files.begin()->second[1].step == 1);
        CHECK(files.rbegin()->second[1].step == 5);
        using Points = std::vector<std::pair<int64_t, float>>;
        CHECK(curve(folder, "train/loss") == Points{{1, 1.0f}, {2, 2.0f}, {3, 3.0f}, {4, 4.0f}, {5, 15.0f}, {6, 16.0f}, {7, 17.0f}});
        CHECK(curve(folder, "train/bits_per_byte").back() == std::pair<int64_t, float>(7, 8.5f));
        CHECK(curve(folder, "train/grad_norm")[0].second == 3.0f);
        CHECK(curve(folder, "train/lr")[0].second == 0.25f);
        CHECK(curve(folder, "train/tokens_per_s")[0].second == 40.0f);
        CHECK(curve(folder, "valid/en/bits_per_byte") == Points{{4, 0.75f}});
        CHECK(curve(folder, "valid/fr/loss") == Points{{4, 2.5f}});
    }
    TEST_CASE("a file cut off at any byte holds the records before") {
        TemporaryFolder folder;
        {
            TensorboardWriter writer(folder / "run/tensorboard", 1);
            for (int64_t step = 1; step <= 3; step++) writer.add(step, {{"train/loss", double(step)}});
        }
        const std::string name = std::filesystem::directory_iterator(folder / "run/tensorboard")->path().filename().string();
        const std::string whole = folder.contents("run/tensorboard/" + name);
        CHECK(records_of(whole).size() == 5);
        size_t before = 0;
        for (size_t cut = 0; cut <= whole.size(); cut++) {
            const size_t now = records_of(whole.substr(0, cut)).size();
            CHECK((now == before || now == before + 1));
            before = now;
        }
        CHECK(before == 5);
    }
    TEST_CASE("what was synced is in the file while the run goes on") {
        TemporaryFolder folder;
        TensorboardWriter writer(folder / "run/tensorboard", 1);
        writer.add(1, {{"train/loss", 1}});
        CHECK(curve(folder, "train/loss").empty());
        writer.sync();
        CHECK(curve(folder, "train/loss").size() == 1);
    }
}

}  // namespace

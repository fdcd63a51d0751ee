// Validation windows: every token but the first is a target exactly once, in order, over document borders; a short end is padded.
#include "../data/packed_windows.h"

#include <filesystem>

#include "support.h"
#include "temporary_folder.h"

using namespace clover;
using namespace clover::test;

TEST_SUITE("packed_windows") {
    TEST_CASE("windows of 4 over documents of 3, 1, 5 and 2 tokens") {
        TemporaryFolder folder;
        IndexedDatasetWriter writer(folder / "set", 100);
        for (const std::vector<int32_t>& d : {std::vector<int32_t>{0, 1, 2}, {3}, {4, 5, 6, 7, 8}, {9, 10}}) writer.add_document(d);
        writer.finish();
        const IndexedDataset data(folder / "set");
        const PackedWindows windows(data, 4);
        CHECK(windows.count() == 3);
        std::vector<int32_t> seen;
        for (int64_t i = 0; i < 5; i++) {
            int32_t ids[4], targets[4];
            windows.read(i, ids, targets);
            for (int j = 0; j < 4; j++) {
                if (targets[j] < 0) {
                    CHECK(ids[j] == 0);
                    continue;
                }
                CHECK(targets[j] == ids[j] + 1);
                seen.push_back(targets[j]);
            }
        }
        CHECK(seen == std::vector<int32_t>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10});
    }
    TEST_CASE("windows of 4 that slide by 1, 2, 3 and 4 score each of the first tokens once, with at least context - stride before it") {
        TemporaryFolder folder;
        IndexedDatasetWriter writer(folder / "set", 100);
        for (const std::vector<int32_t>& d : {std::vector<int32_t>{0, 1, 2}, {3}, {4, 5, 6, 7, 8}, {9, 10}}) writer.add_document(d);
        writer.finish();
        const IndexedDataset data(folder / "set");
        struct Row {
            int64_t stride, tokens, predicted, windows;
        };
        for (const Row& row : {Row{1, -1, 10, 7}, {2, -1, 10, 4}, {3, -1, 10, 3}, {4, -1, 10, 3}, {1, 7, 7, 4}, {2, 7, 7, 3}, {3, 3, 3, 1}, {4, 8, 8, 2}, {3, 99, 10, 3}, {2, 0, 0, 0}}) {
            const PackedWindows windows(data, WindowOptions{.context = 4, .stride = row.stride, .tokens = row.tokens});
            CHECK(windows.count() == row.windows);
            CHECK(windows.predicted() == row.predicted);
            std::vector<int32_t> seen, wanted;
            for (int64_t i = 0; i < windows.count() + 1; i++) {
                int32_t ids[4], targets[4];
                windows.read(i, ids, targets);
                for (int64_t j = 0; j < 4; j++) {
                    if (targets[j] < 0) continue;
                    CHECK(targets[j] == ids[j] + 1);
                    CHECK((i == 0 || j >= 4 - row.stride));
                    seen.push_back(targets[j]);
                }
                CHECK((i >= windows.count() || ids[0] == int32_t(i * row.stride)));
            }
            for (int32_t t = 1; t <= row.predicted; t++) wanted.push_back(t);
            CHECK(seen == wanted);
        }
    }
    TEST_CASE("one token predicts nothing; two give one window") {
        for (int tokens : {1, 2, 5, 6}) {
            TemporaryFolder folder;
            IndexedDatasetWriter writer(folder / "set", 100);
            writer.add_document(std::vector<int32_t>(size_t(tokens), 7));
            writer.finish();
            const IndexedDataset data(folder / "set");
            CHECK(PackedWindows(data, 4).count() == (tokens == 1 ? 0 : tokens == 6 ? 2 : 1));
        }
    }
}

#include <doctest/doctest.h>

#include "../data/examples.h"

using namespace clover;

namespace {

using Ids = std::vector<int32_t>;

std::vector<std::pair<int64_t, int64_t>> documents_of(const Ids& ids, int64_t rows, const ExampleOptions& options) {
    std::vector<RowRange> documents = {{7, 7}};
    document_rows(ids.data(), rows, options, documents);
    std::vector<std::pair<int64_t, int64_t>> p;
    for (RowRange r : documents) p.emplace_back(r.first, r.count);
    return p;
}

Ids targets_of(const Ids& tokens, ExampleOptions options) {
    options.context = int64_t(tokens.size()) - 1;
    Ids ids(tokens.size() - 1), targets(ids);
    make_example(tokens.data(), options, ids.data(), targets.data());
    CHECK(ids == Ids(tokens.begin(), tokens.end() - 1));
    return targets;
}

}  // namespace

TEST_SUITE("examples") {
    // 9 ends a document: "1 2 9" "3 9" "9" "4 5"
    TEST_CASE("targets are the next tokens; ends of documents as the options say") {
        const Ids tokens = {1, 2, 9, 3, 9, 9, 4, 5};
        CHECK(targets_of(tokens, {.end_of_document = 9}) == Ids{2, 9, 3, 9, 9, 4, 5});
        CHECK(targets_of(tokens, {.end_of_document = 9, .train_on_eod = false}) == Ids{2, -1, 3, -1, -1, 4, 5});
        // Megatron's get_ltor_masks_and_position_ids(eod_mask_loss=True): loss_mask[tokens[:-1] == eod] = 0
        CHECK(targets_of(tokens, {.end_of_document = 9, .train_after_eod = false}) == Ids{2, 9, -1, 9, -1, -1, 5});
        CHECK(targets_of(tokens, {.end_of_document = 9, .train_on_eod = false, .train_after_eod = false}) == Ids{2, -1, -1, -1, -1, -1, 5});
    }

    TEST_CASE("the rows of documents: an end belongs to its document, a sequence begins one") {
        const Ids ids = {1, 2, 9, 3, /**/ 4, 9, 9, 5, /**/ 1, 1, 1, 9};
        CHECK(documents_of(ids, 12, {.context = 4, .end_of_document = 9}) ==
              std::vector<std::pair<int64_t, int64_t>>{{0, 3}, {3, 1}, {4, 2}, {6, 1}, {7, 1}, {8, 4}});
        CHECK(documents_of(ids, 8, {.context = 4}) == std::vector<std::pair<int64_t, int64_t>>{{0, 4}, {4, 4}});
    }
}

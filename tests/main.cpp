// Runs every doctest suite and ends with the line "N passed, M failed" (test cases). Options are doctest's: -tc=NAME, -ts=SUITE.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdio>

namespace {
struct Totals : doctest::IReporter {
    static inline unsigned failed = 0, run = 0;
    explicit Totals(const doctest::ContextOptions&) {}
    void report_query(const doctest::QueryData&) override {}
    void test_run_start() override {}
    void test_run_end(const doctest::TestRunStats& stats) override {
        failed = stats.numTestCasesFailed;
        run = stats.numTestCasesPassingFilters;
    }
    void test_case_start(const doctest::TestCaseData&) override {}
    void test_case_reenter(const doctest::TestCaseData&) override {}
    void test_case_end(const doctest::CurrentTestCaseStats&) override {}
    void test_case_exception(const doctest::TestCaseException&) override {}
    void subcase_start(const doctest::SubcaseSignature&) override {}
    void subcase_end() override {}
    void log_assert(const doctest::AssertData&) override {}
    void log_message(const doctest::MessageData&) override {}
    void test_case_skipped(const doctest::TestCaseData&) override {}
};
}  // namespace
REGISTER_LISTENER("totals", 1, Totals);

int main(int argc, char** argv) {
    doctest::Context context(argc, argv);
    const int result = context.run();
    if (context.shouldExit()) return result;
    std::printf("%u passed, %u failed\n", Totals::run - Totals::failed, Totals::failed);
    return result != 0 || Totals::run == 0;
}

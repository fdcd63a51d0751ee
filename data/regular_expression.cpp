#include "regular_expression.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <chrono>

#include "../kernels/error.h"
#include "oniguruma.h"
#include "scratch_pool.h"
#include "utf8.h"

namespace clover {
namespace {

constexpr size_t pattern_limit = 16384;
constexpr uint32_t step_limit = 10'000'000;             // backtracking steps of one match
constexpr size_t stack_bytes = 32 << 10, stack_limit = 16 << 20;  // of code from the just-in-time compiler
constexpr uint32_t heap_limit_kb = 16 << 10;            // of the interpreter
using Clock = std::chrono::steady_clock;

template <auto release>
struct Release {
    template <class T>
    void operator()(T* p) const { release(p); }
};
using Code = std::unique_ptr<pcre2_code, Release<pcre2_code_free>>;

std::string pcre2_message(int code) {
    PCRE2_UCHAR message[256];
    pcre2_get_error_message(code, message, sizeof message);
    return reinterpret_cast<const char*>(message);
}

Code compile(const std::string& translated, std::string_view pattern, const std::string& origin) {
    const std::unique_ptr<pcre2_compile_context, Release<pcre2_compile_context_free>> context(pcre2_compile_context_create(nullptr));
    pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
    int error = 0;
    size_t offset = 0;
    Code code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(), PCRE2_UTF | PCRE2_USE_OFFSET_LIMIT, &error, &offset, context.get()));
    require(code != nullptr, origin, ": regular expression \"", pattern, "\": ", pcre2_message(error));
    pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);  // where it fails the interpreter runs
    return code;
}

}  // namespace

struct RegularExpression::Impl {
    /// What one search needs for itself.
    struct Scratch {
        std::unique_ptr<pcre2_match_data, Release<pcre2_match_data_free>> match;
        std::unique_ptr<pcre2_match_context, Release<pcre2_match_context_free>> context{pcre2_match_context_create(nullptr)};
        std::unique_ptr<pcre2_jit_stack, Release<pcre2_jit_stack_free>> stack{pcre2_jit_stack_create(stack_bytes, stack_limit, nullptr)};
        explicit Scratch(const pcre2_code* code) : match(pcre2_match_data_create_from_pattern(code, nullptr)) {
            require(match && context, "out of memory");
            pcre2_set_match_limit(context.get(), step_limit);
            pcre2_set_heap_limit(context.get(), heap_limit_kb);
            if (stack) pcre2_jit_stack_assign(context.get(), nullptr, stack.get());
        }
    };
    std::string pattern, origin;
    Code code;
    ScratchPool<Scratch> pool;
};

RegularExpression::RegularExpression(std::string_view pattern, const std::string& origin) : impl_(std::make_unique<Impl>()) {
    require(pattern.size() <= pattern_limit, origin, ": a regular expression of ", pattern.size(), " bytes; at most ", pattern_limit, " are supported");
    impl_->pattern = pattern;
    impl_->origin = origin;
    impl_->code = compile(oniguruma_to_pcre2(pattern, origin), pattern, origin);
}
RegularExpression::~RegularExpression() = default;
RegularExpression::RegularExpression(RegularExpression&&) noexcept = default;

struct RegularExpression::Search::State {
    Impl& impl;
    std::string_view text;
    ScratchPool<Impl::Scratch>::Loan scratch;
    size_t at = 0;
    bool matched = false;  // there was a match, which ends at last_
    // One match is looked for among so many starts at a time, so that the clock can be watched; more when that goes fast.
    size_t window = 64;
    int matches_unwatched = 0;
    Clock::time_point start = Clock::now();

    State(Impl& i, std::string_view t) : impl(i), text(t), scratch(i.pool.borrow([&] { return std::make_unique<Impl::Scratch>(i.code.get()); })) {}

    [[noreturn]] void fail(const std::string& reason) const {
        throw InputError(clover::text(impl.origin, ": regular expression \"", impl.pattern, "\": ", reason, "; write it so that fewer ways of matching have to be tried"));
    }
    /// Seconds since the start; a linear search of a text of 1 MB takes some 0.05.
    Clock::time_point watch() const {
        const Clock::time_point now = Clock::now();
        if (now - start > std::chrono::seconds(10) + std::chrono::microseconds(2) * text.size()) fail("it takes too long on a text");
        return now;
    }
    /// The first match that begins in [at, at + window]; where there is none, moves `at` behind that.
    bool match_in_window() {
        const size_t limit = std::min(at + window, text.size());
        pcre2_set_offset_limit(scratch->context.get(), limit);
        const int result = pcre2_match(impl.code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), at, PCRE2_NO_UTF_CHECK, scratch->match.get(),
                                       scratch->context.get());
        if (result >= 0) return true;
        if (result != PCRE2_ERROR_NOMATCH) fail(pcre2_message(result));
        at = limit + 1;
        while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80) at++;
        return false;
    }
};

RegularExpression::Search::Search(const RegularExpression& expression, std::string_view text) : state_(std::make_unique<State>(*expression.impl_, text)) {}
RegularExpression::Search::~Search() = default;

bool RegularExpression::Search::next() {
    State& s = *state_;
    while (s.at <= s.text.size()) {
        const Clock::time_point before = s.matches_unwatched++ % 64 == 0 ? s.watch() : Clock::time_point();
        if (!s.match_in_window()) {
            const Clock::time_point after = s.watch();
            if (before != Clock::time_point() && after - before < std::chrono::milliseconds(1)) s.window *= 2;
            s.matches_unwatched = 0;
            continue;
        }
        const size_t* offsets = pcre2_get_ovector_pointer(s.scratch->match.get());
        if (offsets[0] == offsets[1] && s.matched && offsets[0] == last_) {
            s.at = last_ < s.text.size() ? last_ + utf8_at(s.text, last_).length : last_ + 1;
            continue;
        }
        first_ = offsets[0];
        s.at = last_ = offsets[1];
        s.matched = true;
        return true;
    }
    return false;
}

}  // namespace clover

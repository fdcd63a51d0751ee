// A regular expression of a tokenizer.json (oniguruma.h), run by PCRE2 with its just-in-time compiler where there is one. Hostile ones end in an InputError
// that names the pattern: steps, memory and time are limited.
#pragma once
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace clover {

class RegularExpression {
public:
    /// `pattern` in Oniguruma's spelling. Throws InputError that opens with `origin`.
    RegularExpression(std::string_view pattern, const std::string& origin);
    ~RegularExpression();
    RegularExpression(RegularExpression&&) noexcept;
    RegularExpression& operator=(RegularExpression&&) = delete;

    /// Walks through the matches of a text, UTF-8, which must live as long. Searches of one expression may run in any number of threads.
    /// An empty match directly after a match does not count, as in Rust's and Oniguruma's iterators.
    class Search {
    public:
        Search(const RegularExpression& expression, std::string_view text);
        ~Search();
        Search(const Search&) = delete;
        /// Sets first() and last() (bytes, past the end); false: there is no other match.
        bool next();
        size_t first() const { return first_; }
        size_t last() const { return last_; }

    private:
        struct State;
        std::unique_ptr<State> state_;
        size_t first_ = 0, last_ = 0;
    };

private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace clover

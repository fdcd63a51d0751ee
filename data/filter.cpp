#include "filter.h"

#include <zlib.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "../kernels/error.h"
#include "near_duplicates.h"
#include "new_file.h"
#include "ordered.h"
#include "repetition_filter.h"
#include "utf8.h"

namespace clover {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t batch_documents = 64, batch_bytes = size_t{1} << 20;
constexpr double no_limit = std::numeric_limits<double>::quiet_NaN();
constexpr double lowest_similarity = 0.7;  // below it, candidates are found too seldom (near_duplicates.h)

std::vector<FilterRule> duplicate_rules() {
    return {{"exact_duplicate", no_limit, false, "the same text as an earlier document, white space aside"},
            {"near_duplicate", 0.8, false, "Jaccard similarity of 13-grams to an earlier document, at most"},
            {"test_set", 0.8, false, "Jaccard similarity of 13-grams to a document of --against, at most"}};
}

FilterRule& find_rule(std::vector<FilterRule>& rules, const std::string& name, const std::string& where) {
    const auto found = std::find_if(rules.begin(), rules.end(), [&](const FilterRule& rule) { return rule.name == name; });
    if (found != rules.end()) return *found;
    std::string names;
    for (const FilterRule& rule : rules) names += " " + rule.name;
    throw InputError(text(where, ": there is no rule ", name, "; the rules are", names));
}

void set_limit(std::vector<FilterRule>& rules, const std::string& assignment) {
    const std::string where = "--set " + assignment;
    const size_t equals = std::min(assignment.find('='), assignment.size());
    FilterRule& rule = find_rule(rules, assignment.substr(0, equals), where);
    require(!std::isnan(rule.limit), where, ": ", rule.name, " has no limit to set; --disable ", rule.name, " leaves it out");
    const char *begin = assignment.data() + std::min(equals + 1, assignment.size()), *end = assignment.data() + assignment.size();
    double value = 0;
    const auto [rest, error] = std::from_chars(begin, end, value);
    require(error == std::errc() && rest == end && std::isfinite(value) && value >= 0, where, ": expected ", rule.name, "=NUMBER, 0 or more");
    const bool similarity = rule.name == "near_duplicate" || rule.name == "test_set";
    require(!similarity || (value >= lowest_similarity && value <= 1), where, ": expected ", lowest_similarity, " to 1; less similar documents are found too seldom");
    rule.limit = value;
}

/// The finished file is FILE, gzipped if its name ends in .gz.
class OutputFile {
public:
    explicit OutputFile(const std::string& path) : file_(path), packed_(path.ends_with(".gz")) {
        constexpr int gzip_header = 16 + MAX_WBITS;
        if (packed_) CLOVER_CHECK(::deflateInit2(&stream_, Z_DEFAULT_COMPRESSION, Z_DEFLATED, gzip_header, 8, Z_DEFAULT_STRATEGY) == Z_OK);
    }
    ~OutputFile() {
        if (packed_) ::deflateEnd(&stream_);
    }
    OutputFile(const OutputFile&) = delete;
    void write(std::string_view bytes) {
        for (; !bytes.empty(); bytes.remove_prefix(std::min(bytes.size(), piece))) {
            pending_ += bytes.substr(0, piece);
            if (pending_.size() >= piece) flush(Z_NO_FLUSH);
        }
    }
    void sync() {
        flush(Z_FINISH);
        file_.sync();
    }
    void commit() { file_.commit(); }

private:
    void flush(int mode) {
        if (!packed_) file_.write(pending_.data(), pending_.size());
        else deflate_pending(mode);
        pending_.clear();
    }
    void deflate_pending(int mode) {
        stream_.next_in = reinterpret_cast<unsigned char*>(pending_.data());
        stream_.avail_in = unsigned(pending_.size());
        unsigned char out[1 << 16];
        do {
            stream_.next_out = out;
            stream_.avail_out = sizeof out;
            CLOVER_CHECK(::deflate(&stream_, mode) != Z_STREAM_ERROR);
            file_.write(out, sizeof out - stream_.avail_out);
        } while (stream_.avail_out == 0);
    }

    static constexpr size_t piece = size_t{1} << 18;
    NewFile file_;
    bool packed_;
    std::string pending_;
    z_stream stream_{};
};

/// A document, and what a worker finds out about it.
struct Candidate {
    RawDocument raw;
    int64_t bytes = 0;
    size_t rule = 0;  // the first it breaks; rules_.size(): none yet
    Hash128 exact;
    MinHash near;
};
using Batch = std::vector<Candidate>;

class Filter {
public:
    explicit Filter(const FilterOptions& options) : options_(options), rules_(filter_rules(options)) {
        const int cores = int(std::max(1u, std::thread::hardware_concurrency()));
        workers_.resize(size_t(options.threads > 0 ? options.threads : cores));
        for (const FilterRule& rule : rules_) report_.rows.push_back({rule, 0, 0, ""});
        exact_rule_ = index_of("exact_duplicate");
        near_rule_ = index_of("near_duplicate");
        test_rule_ = index_of("test_set");
        if (options.against.empty()) rules_[test_rule_].on = report_.rows[test_rule_].rule.on = false;
    }
    FilterReport run() {
        DocumentReader reader(options_.inputs, options_.documents);
        require_other_file(reader, options_.out, "--out");
        if (!options_.report.empty()) require_other_file(reader, options_.report, "--report");
        OutputFile out(options_.out);
        std::unique_ptr<OutputFile> report;
        if (!options_.report.empty()) report = std::make_unique<OutputFile>(options_.report);
        if (rules_[test_rule_].on) read_test_sets();
        for_each_batch(reader, false, [&](Batch& batch) {
            for (Candidate& c : batch)
                if (stays(c, reader)) out.write(c.raw.bytes += '\n');
        });
        out.sync();
        if (report) {
            report->write(filter_json(report_));
            report->sync();
            report->commit();
        }
        out.commit();
        sync_folder_of(options_.out);
        return report_;
    }

private:
    struct Worker {
        RepetitionFilter repetition;
        std::string parsed, mended, scratch;
    };

    size_t index_of(const char* name) const {
        return size_t(std::find_if(rules_.begin(), rules_.end(), [&](const FilterRule& rule) { return rule.name == name; }) - rules_.begin());
    }
    static void require_other_file(const DocumentReader& reader, const std::string& path, const char* option) {
        for (const std::string& input : reader.files()) {
            std::error_code ignored;
            require(!std::filesystem::equivalent(input, path, ignored), option, " ", path, ": is also an input; choose another name");
        }
    }

    void for_each_batch(DocumentReader& reader, bool only_fingerprints, const std::function<void(Batch&)>& consume) {
        const auto produce = [&](Batch& batch) {
            for (size_t bytes = 0; batch.size() < batch_documents && bytes < batch_bytes; bytes += batch.back().raw.bytes.size()) {
                batch.emplace_back();
                if (reader.next(batch.back().raw)) continue;
                batch.pop_back();
                break;
            }
            return !batch.empty();
        };
        const auto work = [&](Batch& batch, int worker) {
            for (Candidate& c : batch) examine(c, reader.place(c.raw), workers_[size_t(worker)], only_fingerprints);
        };
        ordered_parallel<Batch>(int(workers_.size()), produce, work, consume);
    }

    /// What can be said of a document without the others.
    void examine(Candidate& c, const std::string& place, Worker& worker, bool only_fingerprints) {
        const std::string_view text = valid_utf8(document_text(c.raw, options_.documents, place, worker.parsed), worker.mended);
        c.bytes = int64_t(text.size());
        c.rule = only_fingerprints ? rules_.size() : broken_rule(text, worker.repetition);
        if (c.rule < rules_.size()) return;
        const bool test = only_fingerprints || rules_[test_rule_].on;
        if (test || rules_[exact_rule_].on) c.exact = exact_hash(text, worker.scratch);
        if (test || rules_[near_rule_].on) c.near = minhash(text);
        if (c.raw.json || only_fingerprints) return;
        c.raw.bytes = Json{{options_.documents.key, text}}.dump();
    }
    size_t broken_rule(std::string_view text, RepetitionFilter& repetition) const {
        size_t first = 0;
        const auto broken = [&](size_t count, auto values) {  // of the next `count` rules; rules_.size() if none is
            const auto begin = rules_.begin() + std::ptrdiff_t(first), end = begin + std::ptrdiff_t(count);
            first += count;
            if (std::none_of(begin, end, [](const FilterRule& rule) { return rule.on; })) return rules_.size();
            const auto& found = values();
            for (size_t i = 0; i < count; i++)
                if (begin[std::ptrdiff_t(i)].broken_by(found[i])) return first - count + i;
            return rules_.size();
        };
        const size_t rule = broken(quality_rules_, [&] { return quality_values(text); });
        return rule < rules_.size() ? rule : broken(repetition_rules_, [&]() -> const std::vector<double>& { return repetition.values(text); });
    }

    void read_test_sets() {
        DocumentReader reader(options_.against, options_.documents);
        for_each_batch(reader, true, [&](Batch& batch) {
            for (const Candidate& c : batch) {
                test_exact_.add(c.exact);
                test_near_.add(c.near);
            }
        });
    }

    size_t duplicate_rule(const Candidate& c) const {
        if (rules_[exact_rule_].on && exact_.contains(c.exact)) return exact_rule_;
        if (rules_[near_rule_].on && near_.contains(c.near, rules_[near_rule_].limit)) return near_rule_;
        if (rules_[test_rule_].on && (test_exact_.contains(c.exact) || test_near_.contains(c.near, rules_[test_rule_].limit))) return test_rule_;
        return rules_.size();
    }
    /// In the order of documents. Counts it, and remembers it if it stays.
    bool stays(Candidate& c, const DocumentReader& reader) {
        report_.documents++;
        report_.bytes += c.bytes;
        if (c.rule == rules_.size()) c.rule = duplicate_rule(c);
        if (c.rule < rules_.size()) {
            FilterRow& row = report_.rows[c.rule];
            if (row.documents++ == 0) row.example = reader.place(c.raw);
            row.bytes += c.bytes;
            return false;
        }
        report_.kept_documents++;
        report_.kept_bytes += c.bytes;
        if (rules_[exact_rule_].on) exact_.add(c.exact);
        if (rules_[near_rule_].on) near_.add(c.near);
        return true;
    }

    const FilterOptions& options_;
    std::vector<FilterRule> rules_;
    const size_t quality_rules_ = quality_rules().size(), repetition_rules_ = repetition_rules().size();
    size_t exact_rule_ = 0, near_rule_ = 0, test_rule_ = 0;
    std::vector<Worker> workers_;
    ExactDuplicates exact_, test_exact_;
    NearDuplicates near_, test_near_;
    FilterReport report_;
};

double percent(int64_t part, int64_t whole) { return whole == 0 ? 0 : 100.0 * double(part) / double(whole); }

std::string table_row(const std::string& name, const std::string& limit, int64_t documents, int64_t bytes, const FilterReport& report, const std::string& example) {
    char line[256];
    std::snprintf(line, sizeof line, "%-32s %9s %12lld %7.3f %% %12.3f MB %7.3f %%  ", name.c_str(), limit.c_str(), static_cast<long long>(documents),
                  percent(documents, report.documents), double(bytes) / 1e6, percent(bytes, report.bytes));
    const std::string whole = line + example;
    return whole.substr(0, whole.find_last_not_of(' ') + 1) + "\n";
}

}  // namespace

std::vector<FilterRule> filter_rules(const FilterOptions& options) {
    std::vector<FilterRule> rules;
    const auto add = [&](std::vector<FilterRule> group, bool on) {
        for (FilterRule& rule : group) {
            rule.on = on || rule.name == "test_set";
            rules.push_back(rule);
        }
    };
    add(quality_rules(), options.quality);
    add(repetition_rules(), options.repetition);
    add(duplicate_rules(), options.duplicates);
    for (const std::string& assignment : options.set) set_limit(rules, assignment);
    for (const std::string& name : options.disable) find_rule(rules, name, "--disable " + name).on = false;
    return rules;
}

FilterReport filter_documents(const FilterOptions& options) { return Filter(options).run(); }

std::string limit_text(const FilterRule& rule) {
    if (!rule.on) return "off";
    return std::isnan(rule.limit) ? "" : text(rule.limit);
}

std::string filter_table(const FilterReport& report) {
    char head[256];
    std::snprintf(head, sizeof head, "%-32s %9s %12s %9s %15s %9s  %s\n", "dropped by", "limit", "documents", "", "text", "", "first");
    std::string table = head;
    for (const FilterRow& row : report.rows) table += table_row(row.rule.name, limit_text(row.rule), row.documents, row.bytes, report, row.example);
    table += table_row("kept", "", report.kept_documents, report.kept_bytes, report, "");
    return table + table_row("all", "", report.documents, report.bytes, report, "");
}

std::string filter_json(const FilterReport& report) {
    Json rules = Json::array();
    for (const FilterRow& row : report.rows)
        rules.push_back({{"rule", row.rule.name},
                         {"meaning", row.rule.meaning},
                         {"on", row.rule.on},
                         {"limit", std::isnan(row.rule.limit) ? Json() : Json(row.rule.limit)},
                         {"documents", row.documents},
                         {"bytes", row.bytes},
                         {"share", percent(row.documents, report.documents) / 100},
                         {"first", row.documents == 0 ? Json() : Json(row.example)}});
    const Json all = {{"documents", report.documents}, {"bytes", report.bytes}, {"kept_documents", report.kept_documents}, {"kept_bytes", report.kept_bytes}, {"rules", rules}};
    return all.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace clover

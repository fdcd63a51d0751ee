#include "tokenizer_json_file.h"

#include <limits>
#include <utility>

#include "../kernels/error.h"
#include "object_reader.h"

namespace clover {
namespace {

using nlohmann::json;

constexpr size_t depth_limit = 64, values_limit = 200'000;

/// Follows the parser. Outside of the three large members it builds the values it is told of; inside it sorts them away.
class Reader final : public nlohmann::json_sax<json> {
public:
    Reader(TokenizerJsonFile& file, const std::string& origin) : file_(file), origin_(origin) {}

    bool null() override { return value(nullptr); }
    bool boolean(bool v) override { return value(v); }
    bool number_integer(number_integer_t v) override { return integer(v); }
    bool number_unsigned(number_unsigned_t v) override { return integer(v <= uint64_t(std::numeric_limits<int64_t>::max()) ? int64_t(v) : -1); }
    bool number_float(number_float_t v, const string_t&) override { return value(v); }
    bool string(string_t& v) override {
        if (part_ == Part::merges) return merge_string(v);
        return value(std::move(v));
    }
    bool binary(binary_t&) override { return false; }
    bool key(string_t& name) override {
        if (part_ == Part::vocabulary) token_ = std::move(name);
        else key_ = std::move(name);
        return true;
    }
    bool start_object(size_t) override {
        if (part_ == Part::merges) refuse_merge();
        if (part_ == Part::vocabulary) throw InputError(text(origin_, ": model.vocab: the token \"", token_, "\" is an object, expected an id"));
        if (in_model() && key_ == "vocab") {
            require(!file_.has_vocabulary, origin_, ": model.vocab is given twice");
            file_.has_vocabulary = true;
            return enter(Part::vocabulary);
        }
        return open(json::object());
    }
    bool end_object() override { return part_ == Part::vocabulary ? leave() : close(); }
    bool start_array(size_t) override {
        if (part_ == Part::merges) {
            if (sides_ >= 0) refuse_merge();
            sides_ = 0;
            return true;
        }
        if (part_ == Part::vocabulary) throw InputError(text(origin_, ": model.vocab: the token \"", token_, "\" is an array, expected an id"));
        if (in_model() && key_ == "merges") {
            require(!file_.has_merges, origin_, ": model.merges is given twice");
            file_.has_merges = true;
            return enter(Part::merges);
        }
        return open(json::array());
    }
    bool end_array() override {
        if (part_ != Part::merges) return close();
        if (sides_ < 0) return leave();
        if (sides_ != 2) refuse_merge();
        sides_ = -1;
        return true;
    }
    bool parse_error(size_t byte, const std::string&, const nlohmann::detail::exception&) override {
        throw InputError(text(origin_, ": not valid JSON at byte ", byte));
    }

private:
    enum class Part : uint8_t { rest, vocabulary, merges };
    TokenizerJsonFile& file_;
    const std::string& origin_;
    Part part_ = Part::rest;
    std::vector<json*> open_;   // the values that are not closed, outermost first
    std::vector<std::string> keys_;  // under which each of them lies
    std::string key_, token_;
    size_t values_ = 0;
    int sides_ = -1;  // of the merge that is an array; -1: outside of one

    bool in_model() const { return open_.size() == 2 && keys_[1] == "model"; }
    bool enter(Part part) { return part_ = part, true; }
    bool leave() { return part_ = Part::rest, true; }

    json* place(json&& v) {
        require(++values_ <= values_limit, origin_, ": more than ", values_limit, " values beside vocabulary and merges");
        if (open_.empty()) return &(file_.rest = std::move(v));
        json& parent = *open_.back();
        if (parent.is_array()) return &parent.emplace_back(std::move(v));
        require(!parent.contains(key_), origin_, ": the member \"", key_, "\" is given twice");
        return &(parent[key_] = std::move(v));
    }
    bool open(json&& v) {
        require(open_.size() < depth_limit, origin_, ": nested more than ", depth_limit, " deep");
        const std::string under = key_;
        open_.push_back(place(std::move(v)));
        keys_.push_back(under);
        return true;
    }
    /// A closed element of added_tokens is taken out of the JSON.
    bool close() {
        const bool added = open_.size() == 3 && keys_[1] == "added_tokens";
        if (added) add_token(*open_.back());
        open_.pop_back();
        keys_.pop_back();
        if (added) *open_.back() = json::array();
        return true;
    }
    bool value(json&& v) {
        if (part_ == Part::merges) refuse_merge();
        if (part_ == Part::vocabulary) throw InputError(text(origin_, ": model.vocab: the token \"", token_, "\" has no id but ", brief(v)));
        place(std::move(v));
        return true;
    }
    bool integer(int64_t v) {
        if (part_ != Part::vocabulary) return value(v);
        require(v >= 0 && v <= std::numeric_limits<int32_t>::max() / 2, origin_, ": model.vocab: the token \"", token_, "\" has the id ", v,
                ", expected 0 or more, and not that large");
        file_.vocabulary.add(token_, int32_t(v));
        return true;
    }

    [[noreturn]] void refuse_merge() const {
        throw InputError(text(origin_, ": model.merges[", file_.merges.size(), "]: expected \"LEFT RIGHT\" or [\"LEFT\", \"RIGHT\"]"));
    }
    bool merge_string(const std::string& v) {
        if (sides_ == 0) add_merge(v, "");
        else if (sides_ == 1) file_.merges.back().right = uint32_t(v.size()), file_.merge_text += v;
        else if (sides_ < 0 && !v.starts_with("#version")) split_merge(v);
        else if (sides_ > 1) refuse_merge();
        if (sides_ >= 0) sides_++;
        return true;
    }
    void split_merge(const std::string& v) {
        const size_t space = v.find(' ');
        if (space == std::string::npos) refuse_merge();
        require(v.find(' ', space + 1) == std::string::npos, origin_, ": model.merges[", file_.merges.size(), "]: \"", v,
                "\" has more than one space, so its two sides cannot be told apart; write it as [\"LEFT\", \"RIGHT\"]");
        add_merge(std::string_view(v).substr(0, space), std::string_view(v).substr(space + 1));
    }
    void add_merge(std::string_view left, std::string_view right) {
        file_.merges.push_back({file_.merge_text.size(), uint32_t(left.size()), uint32_t(right.size())});
        file_.merge_text.append(left).append(right);
    }

    void add_token(const json& v) {
        ObjectReader reader(v, text(origin_, ": added_tokens[", file_.added.size(), "]"));
        AddedToken token;
        const json& id = reader.member("id");
        if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() > std::numeric_limits<int32_t>::max() / 2)
            reader.refuse("id", "expected an integer of 0 or more");
        token.id = id.get<int32_t>();
        token.content = reader.string("content");
        token.single_word = reader.boolean("single_word", false);
        token.lstrip = reader.boolean("lstrip", false);
        token.rstrip = reader.boolean("rstrip", false);
        token.special = reader.boolean("special", false);
        token.normalized = reader.boolean("normalized", !token.special);
        reader.finish();
        file_.added.push_back(std::move(token));
        values_ -= std::min<size_t>(values_, 8);
    }
};

}  // namespace

TokenizerJsonFile read_tokenizer_json(std::string_view contents, const std::string& origin) {
    TokenizerJsonFile file;
    Reader reader(file, origin);
    json::sax_parse(contents.begin(), contents.end(), &reader);
    require(file.rest.is_object(), origin, ": is ", brief(file.rest), ", expected an object");
    return file;
}

}  // namespace clover

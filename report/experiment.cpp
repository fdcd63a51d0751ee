#include "experiment.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <sstream>

#include "../data/text_source.h"
#include "../data/toml.h"

namespace clover {
namespace {

std::string joined(const std::vector<std::string>& words) {
    std::string all;
    for (const std::string& w : words) all += (all.empty() ? "" : ", ") + w;
    return all.empty() ? "none" : all;
}

/// A table of the file: takes the keys it knows, then refuses what is left.
class Section {
public:
    Section(const toml::table& table, std::string name, const std::string& origin) : table_(table), name_(std::move(name)), origin_(origin) {}

    std::string place(const toml::node* node = nullptr) const {
        return text(origin_, ":", (node ? node->source() : table_.source()).begin.line, name_.empty() ? "" : ": [" + name_ + "]");
    }
    const toml::node* take(const char* key, bool required = false) {
        if (std::find(known_.begin(), known_.end(), key) == known_.end()) known_.push_back(key);
        const toml::node* node = table_.get(key);
        require(node || !required, place(), ": `", key, "` is missing");
        return node;
    }
    template <class T>
    T value(const char* key, T fallback, const char* expected, bool required = false) {
        const toml::node* node = take(key, required);
        return node ? as<T>(*node, key, expected) : fallback;
    }
    std::string string(const char* key, bool required = false) { return value<std::string>(key, "", "a string", required); }
    double number(const char* key, double fallback) { return value<double>(key, fallback, "a number"); }
    /// A name becomes that of a folder and stands in measures.
    std::string own_name(std::set<std::string>& taken) {
        const std::string name = string("name", true);
        const bool plain = !name.empty() && std::all_of(name.begin(), name.end(), [](char c) { return isalnum(uint8_t(c)) || c == '-' || c == '_'; });
        require(plain, place(take("name")), ": name = \"", one_line(name, 60), "\": expected letters, digits, - and _");
        require(taken.insert(name).second, place(take("name")), ": there are two with name = \"", name, "\"; rename one");
        return name;
    }
    template <class T>
    std::vector<T> list(const char* key, const char* expected) {
        std::vector<T> values;
        const toml::node* node = take(key);
        if (!node) return values;
        require(node->is_array(), place(node), ": ", key, ": expected a list, each ", expected);
        for (const toml::node& item : *node->as_array()) values.push_back(as<T>(item, key, expected));
        return values;
    }
    std::vector<std::string> strings(const char* key) { return list<std::string>(key, "a string"); }
    std::vector<int64_t> seeds(const char* key) {
        const std::vector<int64_t> seeds = list<int64_t>(key, "an integer");
        for (const int64_t s : seeds) require(s >= 0 && s <= UINT32_MAX, place(take(key)), ": ", key, ": ", s, " is no seed; expected integers from 0 to ", UINT32_MAX);
        require(std::set(seeds.begin(), seeds.end()).size() == seeds.size(), place(take(key)), ": ", key, ": a seed stands there twice");
        return seeds;
    }
    /// Overrides of the config; what they say is checked where the config is read.
    std::vector<std::string> overrides() {
        const std::vector<std::string> set = strings("set");
        for (const std::string& s : set)
            require(s.find('=') != std::string::npos && s.find('.') < s.find('='), place(take("set")), ": set: expected \"section.key=value\", has \"", one_line(s, 80), "\"");
        return set;
    }
    /// The tables of [[key]].
    std::vector<Section> sections(const char* key) {
        std::vector<Section> all;
        const toml::node* node = take(key);
        if (!node) return all;
        const toml::array* array = node->as_array();
        require(array && !array->empty() && std::all_of(array->begin(), array->end(), [](const toml::node& n) { return n.is_table(); }), place(node), ": expected [[", key, "]] tables");
        for (const toml::node& item : *array) all.emplace_back(*item.as_table(), key, origin_);
        return all;
    }
    void finish() const {
        for (const auto& [key, node] : table_) {
            const std::string name(key.str());
            require(std::find(known_.begin(), known_.end(), name) != known_.end(), place(&node), ": there is no key ", one_line(name, 60), "; the keys are ", joined(known_));
        }
    }

private:
    const toml::table& table_;
    std::string name_;
    const std::string& origin_;
    std::vector<std::string> known_;

    template <class T>
    T as(const toml::node& node, const char* key, const char* expected) const {
        const auto value = node.value<T>();
        require(value.has_value(), place(&node), ": ", key, ": expected ", expected);
        return *value;
    }
};

/// The words are separated by spaces: "a:x - b:x / c:y". Quotients bind closer than sums.
std::vector<MeasureTerm> parse_measure(const std::string& written, const std::string& place) {
    std::vector<MeasureTerm> terms;
    std::istringstream words(written);
    char next = '+';
    for (std::string word; words >> word;) {
        const size_t colon = word.find(':');
        require(colon != std::string::npos && colon > 0 && colon + 1 < word.size(), place, ": measure: expected ARM:METRIC, has \"", one_line(word, 60), "\"");
        if (next != '/') terms.push_back({next == '-' ? -1.0 : 1.0, {}});
        terms.back().factors.push_back({word.substr(0, colon), word.substr(colon + 1)});
        next = 0;
        if (!(words >> word)) break;
        require(word == "+" || word == "-" || word == "/", place, ": measure: expected + - or / between spaces, has \"", one_line(word, 60), "\"");
        next = word[0];
    }
    require(next == 0, place, ": measure: ends without ARM:METRIC");
    return terms;
}

template <class List>
std::vector<std::string> names(const List& list) {
    std::vector<std::string> all;
    for (const auto& item : list) all.push_back(item.name);
    return all;
}

template <class List>
auto find_named(List& list, const std::string& name) -> decltype(&list[0]) {
    for (auto& item : list)
        if (item.name == name) return &item;
    return nullptr;
}

class Reader {
public:
    Reader(const toml::table& root, const std::string& origin, const std::string& folder) : origin_(origin), top_(root, "", origin_) { e_.folder = folder; }

    Experiment read() {
        e_.title = top_.string("title", true), e_.source = top_.string("source", true), e_.finding = top_.string("finding", true), e_.scale = top_.string("scale", true);
        config_ = top_.string("config", true);
        seeds_ = top_.seeds("seeds"), jobs_ = top_.value<int64_t>("jobs", 0, "an integer");
        for (Section& s : top_.sections("arm")) read_arm(s);
        require(!e_.arms.empty(), top_.place(), ": there is no [[arm]]");
        for (Section& s : top_.sections("variant")) read_variant(s);
        if (e_.variants.empty()) e_.variants.push_back({"", "", config_, {}, {}, seeds_, jobs_});
        read_quick();
        for (Section& s : top_.sections("command")) read_command(s);
        for (Section& s : top_.sections("metric")) read_metric(s);
        for (Section& s : top_.sections("check")) read_check(s);
        for (Section& s : top_.sections("chart")) read_chart(s);
        if (e_.charts.empty()) {
            e_.charts.emplace_back();
            e_.charts[0].title = "training loss", e_.charts[0].series = "loss";
        }
        top_.finish();
        return e_;
    }

private:
    Experiment e_;
    std::string origin_, config_;
    std::vector<int64_t> seeds_;
    int64_t jobs_ = 0;
    Section top_;
    std::set<std::string> arm_names_, variant_names_, command_names_, metric_names_;

    void read_arm(Section& s) {
        ExperimentArm arm;
        arm.name = s.own_name(arm_names_), arm.label = s.string("label"), arm.set = s.overrides(), arm.after = s.string("after");
        if (arm.label.empty()) arm.label = arm.name;
        require(arm.after.empty() || e_.arm(arm.after), s.place(s.take("after")), ": after: there is no arm ", one_line(arm.after, 60), " before this one");
        s.finish();
        e_.arms.push_back(arm);
    }
    void read_variant(Section& s) {
        ExperimentVariant v;
        v.name = s.own_name(variant_names_), v.label = s.string("label"), v.config = s.string("config"), v.set = s.overrides(), v.arms = s.strings("arms"), v.seeds = s.seeds("seeds");
        v.jobs = s.value<int64_t>("jobs", jobs_, "an integer");
        if (v.label.empty()) v.label = v.name;
        if (v.config.empty()) v.config = config_;
        if (v.seeds.empty()) v.seeds = seeds_;
        require(!v.seeds.empty(), s.place(), ": no `seeds`, neither here nor for all");
        for (const std::string& a : v.arms) {
            require(e_.arm(a), s.place(s.take("arms")), ": arms: there is no arm ", one_line(a, 60), "; there are ", joined(names(e_.arms)));
            const std::string& before = e_.arm(a)->after;
            require(before.empty() || takes_part(v, before), s.place(s.take("arms")), ": arms: ", a, " starts from ", before, ", which is not among them");
        }
        s.finish();
        e_.variants.push_back(v);
    }
    void read_quick() {
        require(!e_.variants[0].seeds.empty(), top_.place(), ": `seeds` is missing");
        const toml::node* node = top_.take("quick", true);
        require(node->is_table(), top_.place(node), ": expected a table [quick]");
        Section s(*node->as_table(), "quick", origin_);
        e_.quick_set = s.overrides(), e_.quick_seeds = s.seeds("seeds");
        s.finish();
    }
    void read_command(Section& s) {
        e_.commands.push_back({s.own_name(command_names_), s.strings("run")});
        require(!e_.commands.back().run.empty(), s.place(), ": `run` is missing, the words of a command of this program");
        s.finish();
    }
    void read_metric(Section& s) {
        static const std::vector<std::string> takes = {"mean", "last", "median", "max", "diverged", "json"};  // in the order of the enum
        Metric m;
        m.name = s.own_name(metric_names_), m.label = s.string("label");
        if (m.label.empty()) m.label = m.name;
        const std::string take = s.string("take", true);
        const auto found = std::find(takes.begin(), takes.end(), take);
        require(found != takes.end(), s.place(s.take("take")), ": take: there is no \"", one_line(take, 60), "\"; there are ", joined(takes));
        m.take = Take(found - takes.begin());
        if (m.take == Take::json) {
            m.command = s.string("command", true), m.at = s.string("at", true);
            require(command_names_.count(m.command) != 0, s.place(s.take("command")), ": command: there is no [[command]] ", one_line(m.command, 60));
            require(m.at.starts_with("/"), s.place(s.take("at")), ": at: expected a JSON pointer such as \"/loss\"");
        } else {
            m.series = s.string("series", true);
        }
        if (m.take == Take::mean || m.take == Take::diverged) m.fraction = s.number("fraction", 0.1);
        if (m.take == Take::diverged) m.limit = s.number("limit", m.limit);
        require(m.fraction > 0 && m.fraction <= 1, s.place(), ": fraction: expected a number above 0 and at most 1");
        s.finish();
        e_.metrics.push_back(m);
    }
    bool takes_part(const ExperimentVariant& v, const std::string& arm) const {
        return v.arms.empty() || std::find(v.arms.begin(), v.arms.end(), arm) != v.arms.end();
    }
    void require_quantity(const Quantity& q, const ExperimentCheck& c, const std::string& place) const {
        require(e_.arm(q.arm), place, ": measure: there is no arm ", one_line(q.arm, 60), "; there are ", joined(names(e_.arms)));
        require(e_.metric(q.metric), place, ": measure: there is no metric ", one_line(q.metric, 60), "; there are ", joined(names(e_.metrics)));
        for (const ExperimentVariant& v : e_.variants) {
            const bool meant = c.variants.empty() || std::find(c.variants.begin(), c.variants.end(), v.name) != c.variants.end();
            require(!meant || takes_part(v, q.arm), place, ": measure: variant ", v.name, " has no arm ", q.arm, "; name in `variants` those the check is for");
        }
    }
    void read_limit(Section& s, ExperimentCheck& c) {
        const double above = s.number("above", NAN), below = s.number("below", NAN), within = s.number("within", NAN);
        require(std::isnan(within) ? !std::isnan(above) || !std::isnan(below) : std::isnan(above) && std::isnan(below) && within > 0, s.place(),
                ": expected `above`, `below` or both, or `within`");
        if (!std::isnan(within)) c.above = -within, c.below = within, c.limit = text("within ±", within);
        else if (std::isnan(below)) c.above = above, c.limit = text("> ", above);
        else if (std::isnan(above)) c.below = below, c.limit = text("< ", below);
        else c.above = above, c.below = below, c.limit = text("> ", above, " and < ", below);
        c.limit = (c.each ? "each " : "mean ") + c.limit;
    }
    void read_check(Section& s) {
        ExperimentCheck c;
        c.claim = s.string("claim", true), c.written = s.string("measure", true), c.variants = s.strings("variants");
        const std::string over = s.value<std::string>("over", "mean", "\"mean\" or \"each\"");
        require(over == "mean" || over == "each", s.place(s.take("over")), ": over: expected \"mean\" or \"each\"");
        c.each = over == "each", c.finding = s.value<bool>("finding", true, "true or false");
        read_limit(s, c);
        for (const std::string& v : c.variants)
            require(variant_names_.count(v) != 0, s.place(s.take("variants")), ": variants: there is no variant ", one_line(v, 60), "; there are ", joined(names(e_.variants)));
        const std::string place = s.place(s.take("measure"));
        c.measure = parse_measure(c.written, place);
        for (const MeasureTerm& term : c.measure)
            for (const Quantity& q : term.factors) require_quantity(q, c, place);
        s.finish();
        e_.checks.push_back(c);
    }
    void read_chart(Section& s) {
        ExperimentChart c;
        c.title = s.string("title", true), c.series = s.string("series"), c.minus = s.string("minus"), c.metrics = s.strings("metrics"), c.x_label = s.string("x_label");
        c.x = s.list<double>("x", "a number");
        c.smooth = s.number("smooth", 0), c.log = s.value<bool>("log", false, "true or false");
        require(c.series.empty() != c.metrics.empty(), s.place(), ": expected `series`, or `metrics` over `x`");
        require(c.metrics.size() == c.x.size(), s.place(), ": metrics and x: expected as many of one as of the other");
        require(c.smooth >= 0 && c.smooth < 1, s.place(s.take("smooth")), ": smooth: expected a number of at least 0 and below 1");
        require(c.minus.empty() || e_.arm(c.minus), s.place(s.take("minus")), ": minus: there is no arm ", one_line(c.minus, 60));
        for (const std::string& m : c.metrics) require(e_.metric(m), s.place(s.take("metrics")), ": metrics: there is no metric ", one_line(m, 60));
        s.finish();
        e_.charts.push_back(c);
    }
};

}  // namespace

const ExperimentArm* Experiment::arm(const std::string& name) const { return find_named(arms, name); }
const Metric* Experiment::metric(const std::string& name) const { return find_named(metrics, name); }

const ExperimentVariant& Experiment::variant(const std::string& name) const {
    const ExperimentVariant* found = find_named(variants, name);
    require(found, "--variant ", one_line(name, 60), ": ", folder, "/experiment.toml has no such variant; it has ",
            variants[0].name.empty() ? "none" : joined(names(variants)));
    return *found;
}

Experiment parse_experiment(const std::string& toml, const std::string& origin, const std::string& folder) {
    const toml::table root = parse_toml(toml, origin);
    return Reader(root, origin, folder).read();
}

Experiment read_experiment(const std::string& folder) {
    const std::string path = folder + "/experiment.toml";
    return parse_experiment(read_text_file(path), path, folder);
}

std::vector<const ExperimentArm*> arms_of(const Experiment& e, const ExperimentVariant& v) {
    std::vector<const ExperimentArm*> arms;
    for (const ExperimentArm& a : e.arms)
        if (v.arms.empty() || std::find(v.arms.begin(), v.arms.end(), a.name) != v.arms.end()) arms.push_back(&a);
    return arms;
}

std::vector<int64_t> seeds_of(const Experiment& e, const ExperimentVariant& v, bool quick) { return quick && !e.quick_seeds.empty() ? e.quick_seeds : v.seeds; }

std::vector<ExperimentRun> runs_of(const Experiment& e, const ExperimentVariant& v, bool quick, const std::string& out) {
    const auto folder = [&](const std::string& arm, int64_t seed) { return text(out, "/", arm, "/seed", seed); };
    std::vector<ExperimentRun> runs;
    for (const int64_t seed : seeds_of(e, v, quick))
        for (const ExperimentArm* arm : arms_of(e, v)) {
            ExperimentRun run{arm, seed, folder(arm->name, seed), e.folder + "/" + v.config, {}};
            for (const auto* set : {&v.set, &arm->set}) run.set.insert(run.set.end(), set->begin(), set->end());
            if (quick) run.set.insert(run.set.end(), e.quick_set.begin(), e.quick_set.end());
            run.set.push_back(text("train.seed=", seed));
            if (!arm->after.empty()) run.set.push_back(text("checkpoint.start=\"", folder(arm->after, seed), "\""));
            runs.push_back(run);
        }
    return runs;
}

}  // namespace clover

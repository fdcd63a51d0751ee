// The page's text: the numbers it holds are the CSV's, and nothing that a run brings along becomes markup. tests/test_report_page.cpp opens it in a browser.
#include "../report/page.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "../report/csv.h"
#include "report_runs.h"

using namespace clover;
using namespace clover::test;
using nlohmann::json;

namespace {

std::string between(const std::string& s, const std::string& start, const std::string& end) {
    const size_t from = s.find(start);
    REQUIRE(from != std::string::npos);
    return s.substr(from + start.size(), s.find(end, from + start.size()) - from - start.size());
}

json data_of(const std::string& page) { return json::parse(between(page, "id=\"data\">", "</script>")); }

size_t count(const std::string& s, const std::string& what) {
    size_t n = 0;
    for (size_t at = s.find(what); at != std::string::npos; at = s.find(what, at + 1)) n++;
    return n;
}

double number_of(const json& j) { return j.is_null() ? std::nan("") : j.get<double>(); }

}  // namespace

TEST_SUITE("page") {
    TEST_CASE("every number of the page is the CSV's; short series are whole, long ones keep their ends") {
        const TemporaryFolder folder;
        const std::vector<RunData> runs = read_runs({make_run(folder, {.name = "a", .steps = 4000, .fp16 = true, .mechanism = true, .spike = true}),
                                                     make_run(folder, {.name = "b", .recipe = "bf16", .diverges = true})});
        const CsvValues csv = read_csv(csv_of(runs));
        const std::string page = to_page(runs);
        const json data = data_of(page);
        REQUIRE(data["runs"].size() == 2);
        size_t numbers = 0, right = 0;
        for (size_t i = 0; i < 2; i++) {
            CHECK(data["runs"][i]["series"].size() == runs[i].series.size());
            for (const auto& [name, series] : data["runs"][i]["series"].items()) {
                const Points& logged = runs[i].points(name);
                CHECK(series["s"].size() == series["v"].size());
                CHECK((series["s"].size() == logged.size() || (logged.size() == 4000 && series["s"].size() > 500 && series["s"].size() < 1510)));
                CHECK(series["s"].front() == logged.front().step);
                CHECK(series["s"].back() == logged.back().step);
                for (size_t k = 0; k < series["s"].size(); k++, numbers++)
                    right += same_six_digits(number_of(series["v"][k]), csv.at({runs[i].name, name, series["s"][k].get<int64_t>()}));
            }
        }
        CHECK(right == numbers);
        CHECK(numbers > 10000);
        CHECK(page.find("Curves of more than 1500 points") != std::string::npos);
        CHECK(data["runs"][0]["spikes"].size() == 1);
        CHECK(to_page({runs[1]}).find("Curves of more than") == std::string::npos);
    }

    TEST_CASE("many curves have fewer points each") {
        const TemporaryFolder folder;
        const std::vector<RunData> runs = {read_run(make_run(folder, {.steps = 4000}))};
        PageOptions o;
        o.points_in_all = 1000;
        const std::string page = to_page(runs, o);
        CHECK(data_of(page)["runs"][0]["series"]["loss"]["s"].size() < 210);
        CHECK(page.find("Curves of more than 200 points") != std::string::npos);
    }

    TEST_CASE("one file: it refers to nothing outside") {
        const TemporaryFolder folder;
        const std::string page = to_page({read_run(make_run(folder, {}))});
        for (const char* reference : {"src=", "href=", "url(", "@import", "fetch(", "<link", "<img"}) CHECK_MESSAGE(page.find(reference) == std::string::npos, reference);
        CHECK(count(page, "http") == count(page, "http://www.w3.org/2000/svg") + count(page, "http-equiv"));
        CHECK(page.find("default-src 'none'") != std::string::npos);
    }

    TEST_CASE("names and values are text") {
        const TemporaryFolder folder;
        const std::string evil = "<img src=x onerror=alert(1)>&\"'";
        const std::vector<RunData> runs = read_runs({make_run(folder, {.name = evil, .more = "train = \"</script><script>alert(2)</script>\"\n"}), make_run(folder, {.name = "b"})});
        PageOptions o;
        o.title = "</title><script>alert(3)</script>";
        o.verdicts.emplace_back();
        o.verdicts[0].title = o.verdicts[0].finding = "<script>alert(4)</script>";
        const std::string page = to_page(runs, o);
        CHECK(count(page, "<script") == 2);
        CHECK(count(page, "</script") == 2);
        CHECK(page.find("<img") == std::string::npos);
        CHECK(page.find("&lt;img src=x onerror=alert(1)&gt;&amp;&quot;&#39;") != std::string::npos);
        CHECK(data_of(page)["runs"][0]["name"] == evil);
    }

    TEST_CASE("configs that differ, arms with several seeds, runs without a step") {
        const TemporaryFolder folder;
        const std::vector<RunData> runs = read_runs({make_run(folder, {.name = "fp32-seed1"}), make_run(folder, {.name = "fp32-seed2", .seed = 2}), make_run(folder, {.name = "bf16", .recipe = "bf16"}),
                                                     make_run(folder, {.name = "new", .recipe = "mixed", .steps = 0})});
        const std::string page = to_page(runs), differences = between(page, "<section id=\"differences\">", "</section>");
        CHECK(differences.find("precision.recipe") != std::string::npos);
        CHECK(differences.find("&quot;bf16&quot;") != std::string::npos);
        CHECK(differences.find("<th>fp32\n") == std::string::npos);
        CHECK(differences.find("<th>fp32<td") != std::string::npos);
        CHECK(differences.find("<td class=\"code\">1, 2") != std::string::npos);
        CHECK(page.find("seeds as bands") != std::string::npos);
        CHECK(page.find("(no step yet)") != std::string::npos);
        CHECK(data_of(page)["arms"] == json({"fp32", "bf16", "new"}));
        CHECK(to_page({runs[0], runs[0]}).find("<p>Nowhere.") != std::string::npos);
        CHECK(to_page({runs[3]}).find("</html>") != std::string::npos);
    }

    TEST_CASE("the spread over seeds") {
        RunData one, two;
        one.name = "s1", two.name = "s2";
        one.config["train.seed"] = "1", two.config["train.seed"] = "2";
        one.series["loss"] = {{1, 2.0}}, two.series["loss"] = {{1, 3.0}};
        CHECK(to_page({one, two}).find("2.50 ± 0.71") != std::string::npos);
    }

    TEST_CASE("verdicts stand on top") {
        RunData run;
        PageOptions o;
        o.verdicts.emplace_back();
        o.verdicts[0].title = "An experiment";
        o.verdicts[0].reproduced = Reproduced::yes;
        const std::string page = to_page({run}, o);
        CHECK(page.find("<h2>An experiment</h2>") < page.find("Final values"));
    }
}

// The report's page in a real browser, headless Chromium: it draws, says nothing on the console, shows the CSV's numbers, follows its switches, fits a phone, and
// prints. The browser is CHROMIUM or the first of chromium, chromium-browser, google-chrome in PATH; without one these tests fail.
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>

#include "../report/csv.h"
#include "../report/page.h"
#include "report_runs.h"

using namespace clover;
using namespace clover::test;

namespace {

std::string find_browser() {
    if (const char* named = std::getenv("CHROMIUM")) return named;
    std::istringstream folders(std::getenv("PATH") ? std::getenv("PATH") : "");
    for (std::string folder; std::getline(folders, folder, ':');)
        for (const char* name : {"chromium", "chromium-browser", "google-chrome"})
            if (const std::string path = folder + "/" + name; ::access(path.c_str(), X_OK) == 0) return path;
    return "";
}

struct Opened {
    std::string dom, console;  // the page's elements as they stand in the end; lines on the console
};

struct Browser {
    TemporaryFolder folder;

    /// Runs Chromium on a file of the folder, with its fragment, until the page has settled.
    Opened open(const std::string& address, const std::string& options = "--dump-dom") {
        const std::string browser = find_browser();
        REQUIRE_MESSAGE(!browser.empty(), "no browser: install the Debian package chromium (make deps does), or name one in the environment variable CHROMIUM");
        const std::string command = "timeout 100 '" + browser + "' --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --hide-scrollbars --allow-file-access-from-files --virtual-time-budget=4000 " +
                                    "--enable-logging=stderr --user-data-dir='" + folder / "profile" + "' " + options + " 'file://" + folder / address + "' >'" + folder / "dom" + "' 2>'" + folder / "err" + "' </dev/null";
        const int status = std::system(command.c_str());
        REQUIRE_MESSAGE(status == 0, browser, " failed: ", folder.contents("err"));
        Opened opened{folder.contents("dom"), ""};
        std::istringstream lines(folder.contents("err"));
        for (std::string line; std::getline(lines, line);)
            if (line.find("CONSOLE") != std::string::npos) opened.console += line + "\n";
        return opened;
    }
};

std::string unescaped(std::string s) {
    const std::pair<const char*, const char*> entities[] = {{"&lt;", "<"}, {"&gt;", ">"}, {"&quot;", "\""}, {"&#39;", "'"}, {"&nbsp;", " "}, {"&amp;", "&"}};
    for (const auto& [entity, character] : entities)
        for (size_t at = s.find(entity); at != std::string::npos; at = s.find(entity, at + 1)) s.replace(at, std::string(entity).size(), character);
    return s;
}

std::string first_between(const std::string& s, const std::string& start, const std::string& end) {
    const std::vector<std::string> found = all_between(s, start, end);
    return found.empty() ? "" : found[0];
}

/// A value that a chart shows for the step it was asked for.
struct ShownValue {
    std::string series, run, text;
    int64_t step;
};
std::vector<ShownValue> shown_values(const std::string& dom) {
    std::vector<ShownValue> values;
    for (const std::string& figure : all_between(dom, "<figure ", "</figure>"))
        for (const std::string& row : all_between(figure, "<div data-run=\"", "</div>"))
            values.push_back({unescaped(first_between(figure, "data-series=\"", "\"")), unescaped(row.substr(0, row.find('"'))), unescaped(first_between(row, "<b>", "</b>")),
                              std::stoll(first_between(row, "data-step=\"", "\""))});
    return values;
}

double number_of(const std::string& text) { return text.rfind("not finite", 0) == 0 ? std::nan("") : std::stod(text); }

/// The chart's lines: their paths.
std::vector<std::string> paths_of(const std::string& dom, const std::string& series) {
    std::vector<std::string> paths;
    for (const std::string& figure : all_between(dom, "<figure ", "</figure>"))
        if (first_between(figure, "data-series=\"", "\"") == series)
            for (const std::string& path : all_between(figure, "<path class=\"l ", ">")) paths.push_back(first_between(path, " d=\"", "\""));
    return paths;
}

const char* const evil = "evil & \"x\" <img src=x onerror=alert(1)>";

/// A page of four runs, and its CSV.
struct Report : Browser {
    CsvValues csv;
    Report() {
        const std::vector<RunData> runs = read_runs({make_run(folder, {.name = "fp32-seed1", .mechanism = true, .spike = true}), make_run(folder, {.name = "fp32-seed2", .seed = 2, .mechanism = true}),
                                                     make_run(folder, {.name = "fp16", .recipe = "fp16", .fp16 = true, .diverges = true}),
                                                     make_run(folder, {.name = evil, .recipe = "mixed", .more = "train = \"</script><script>window.hacked = 1</script>\"\n"})});
        folder.file("report.html", to_page(runs));
        csv = read_csv(csv_of(runs));
    }
};

}  // namespace

TEST_SUITE("report page") {
    TEST_CASE_FIXTURE(Report, "it draws every series, and what it shows at a step is the CSV's") {
        const Opened page = open("report.html#at=300");
        CHECK(page.console == "");
        const std::vector<ShownValue> values = shown_values(page.dom);
        std::map<std::string, int> charts;
        for (const ShownValue& v : values) {
            INFO(v.series, " of ", v.run, " at ", v.step, ": ", v.text);
            CHECK(v.step == 300);
            CHECK(same_six_digits(number_of(v.text), csv.at({v.run, v.series, v.step})));
            charts[v.series]++;
        }
        const std::map<std::string, int> expected = {{"loss", 4}, {"valid.bits_per_byte", 4}, {"valid.en.bits_per_byte", 4}, {"valid.de.bits_per_byte", 4}, {"lr", 4}, {"grad_norm", 4},
                                                     {"tokens_per_s", 4}, {"loss_scale", 1}, {"skipped", 1}, {"stale.embedding", 2}, {"stale.matrices", 2}, {"update.embedding", 2}, {"update.matrices", 2}};
        for (const auto& [series, n] : expected) CHECK_MESSAGE(charts[series] == n, series);
        CHECK(charts.size() == expected.size());
        CHECK(paths_of(page.dom, "loss").size() == 4);
        CHECK(paths_of(page.dom, "stale").size() == 2);  // by layer
        CHECK(all_between(page.dom, "class=\"spike ", ">").size() == 1);
    }

    TEST_CASE_FIXTURE(Report, "the table of final values is the CSV's") {
        const Opened page = open("report.html");
        const std::string table = first_between(page.dom, "<section id=\"final\">", "</section>"), runs = table.substr(table.find("<details"));
        const auto rows = all_between(runs, "<tr>", "</tr>");
        REQUIRE(rows.size() == 5);
        for (size_t i = 1; i < rows.size(); i++) {
            const std::string run = unescaped(first_between(rows[i], "<th>", "</th>"));
            for (const char* series : {"loss", "valid.bits_per_byte", "valid.en.bits_per_byte"}) {
                const double shown = number_of(first_between(rows[i], std::string("<td data-value=\"") + series + "\">", "</td>")), exact = csv.at({run, series, 400});
                CHECK((std::isnan(exact) ? std::isnan(shown) : std::fabs(shown - exact) <= 5.1e-5 * std::fabs(exact)));
            }
        }
    }

    TEST_CASE_FIXTURE(Report, "the fragment sets the switches: axes, smoothing, bands, hidden runs") {
        const Opened plain = open("report.html"), log = open("report.html#log&smooth=0.9&hide=1,2&at=300"), band = open("report.html#logx&band&from=0.5");
        CHECK(log.console + band.console == "");
        CHECK(first_between(first_between(plain.dom, "data-series=\"loss\"", "</figure>"), "data-y=\"", "\"") == "linear");
        CHECK(first_between(first_between(log.dom, "data-series=\"loss\"", "</figure>"), "data-y=\"", "\"") == "log");
        CHECK(first_between(first_between(band.dom, "data-series=\"loss\"", "</figure>"), "data-x=\"", "\"") == "log");
        CHECK(paths_of(log.dom, "loss").size() == 4);  // two runs, pale as logged and smoothed
        CHECK(paths_of(log.dom, "loss")[0] != paths_of(plain.dom, "loss")[0]);
        CHECK(paths_of(log.dom, "lr").size() == 2);
        CHECK(paths_of(band.dom, "loss").size() == 3);
        CHECK(all_between(first_between(band.dom, "data-series=\"loss\"", "</figure>"), "<path class=\"f d ", ">").size() == 1);

        // The smoothed value, by its definition: weight 0.9 for each thousandth of the 399 steps.
        double sum = 0, weights = 0;
        for (int step = 1; step <= 300; step++) {
            const double w = std::pow(0.9, (300 - step) * 1000.0 / 399);
            sum += w * csv.at({"fp32-seed1", "loss", step}), weights += w;
        }
        bool found = false;
        for (const ShownValue& v : shown_values(log.dom)) {
            if (v.series != "loss" || v.run != "fp32-seed1") continue;
            found = true;
            CHECK(std::stod(v.text) == doctest::Approx(sum / weights).epsilon(1e-4));
            CHECK(v.text.find(" smoothed, ") != std::string::npos);
            CHECK(same_six_digits(std::stod(v.text.substr(v.text.find(", ") + 2)), csv.at({v.run, "loss", 300})));
        }
        CHECK(found);
    }

    TEST_CASE_FIXTURE(Report, "on a phone nothing overflows, everything unfolded; nothing that a run brings along is run") {
        folder.file("phone.html", "<iframe id=f src=report.html width=390 height=800 style='border:0'></iframe><p id=r></p><script>\n"
                                  "const f = document.getElementById('f');\n"
                                  "f.onload = () => { const d = f.contentDocument; d.querySelectorAll('details').forEach(e => e.open = true); setTimeout(() => {\n"
                                  "  const e = d.documentElement, wide = [...d.querySelectorAll('figure, section, .controls, .legend, .wide')].filter(x => x.getBoundingClientRect().right > 390).length;\n"
                                  "  document.getElementById('r').textContent = `width ${f.contentWindow.innerWidth} content ${e.scrollWidth} wide ${wide} hacked ${f.contentWindow.hacked}`\n"
                                  "    + ` scripts ${d.scripts.length} images ${d.images.length} charts ${d.querySelectorAll('figure svg').length} of ${d.querySelectorAll('figure').length}`; }, 500); };\n</script>");
        const Opened page = open("phone.html");
        CHECK(page.console == "");
        const std::string result = first_between(page.dom, "<p id=\"r\">", "</p>");
        CHECK_MESSAGE(result.rfind("width 390 content 390 wide 0 hacked undefined scripts 2 images 0 ", 0) == 0, result);
        const std::string charts = first_between(result + "|", "charts ", "|");
        CHECK(std::stoi(charts) > 20);
        CHECK(charts.substr(0, charts.find(' ')) == charts.substr(charts.rfind(' ') + 1));
    }

    TEST_CASE_FIXTURE(Report, "it prints") {
        open("report.html", "--no-pdf-header-footer --print-to-pdf='" + folder / "report.pdf" + "'");
        const std::string pdf = folder.contents("report.pdf");
        CHECK(pdf.substr(0, 5) == "%PDF-");
        CHECK(pdf.size() > 20000);
    }

    TEST_CASE_FIXTURE(Browser, "an error on the console would be seen") {
        folder.file("wrong.html", "<p>1<script>missing();</script>");
        CHECK(open("wrong.html").console.find("missing is not defined") != std::string::npos);
    }
}

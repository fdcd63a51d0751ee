// The CSV of runs: every value of the logs, exactly.
#include "../report/csv.h"

#include <doctest/doctest.h>

#include "report_runs.h"

using namespace clover;
using namespace clover::test;

TEST_SUITE("csv") {
    TEST_CASE("layout, quoting, values that are not finite") {
        RunData run;
        run.name = "a,\"b\"";
        run.series["loss"] = {{1, 0.1}, {2, std::nan("")}};
        run.series["lr"] = {{1, 1e-7}};
        run.spikes = {{2, "loss", 5, 1, 0.5}};
        CHECK(csv_of({run}) == "run,series,step,value\n\"a,\"\"b\"\"\",loss,1,0.1\n\"a,\"\"b\"\"\",loss,2,nan\n\"a,\"\"b\"\"\",lr,1,1e-07\n\"a,\"\"b\"\"\",spike.loss,2,5\n");
    }

    TEST_CASE("values read back to what the log has") {
        const TemporaryFolder folder;
        const RunData run = read_run(make_run(folder, {.name = "x", .mechanism = true, .spike = true}));
        write_csv({run}, folder / "out.csv");
        const CsvValues values = read_csv(folder.contents("out.csv"));
        size_t count = 0;
        for (const auto& [name, points] : run.series)
            for (const Point& p : points) count += values.at({"x", name, p.step}) == p.value;
        CHECK(count + 1 == values.size());
        CHECK(count > 2000);
    }
}

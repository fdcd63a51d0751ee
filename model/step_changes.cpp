#include "step_changes.h"

#include <algorithm>

namespace clover {
namespace {

void add(GroupChange& group, const Parameter& p, const Change& c) {
    group.count += p.count;
    group.unchanged += double(c.unchanged);
    group.step_squares += double(c.step_squares);
    group.weight_squares += double(c.weight_squares);
}

}  // namespace

void gather(const ParameterTable& table, const std::vector<Change>& changes, StepChanges& to) {
    int64_t layers = 0;
    for (const Parameter& p : table.all()) layers = std::max(layers, p.layer + 1);
    to.classes.fill({});
    to.layers.assign(size_t(layers), {});
    for (size_t k = 0; k < changes.size(); k++) {
        const Parameter& p = table.all()[k];
        add(to.classes[size_t(p.kind)], p, changes[k]);
        if (p.layer >= 0) add(to.layers[size_t(p.layer)], p, changes[k]);
    }
}

}  // namespace clover

#include "parameters.h"

#include <cmath>
#include <vector>

#include "../kernels/random.h"

namespace clover {
namespace {

// What a model needs to have the parameter.
enum class When : uint8_t { always, embedding_norm, learned, relative, bias_all, bias_output, untied };
// Whose columns the shape names: rows × columns in terms of the config.
enum class Size : uint8_t { none, vocab, context, hidden, inner, qkv, ffn, heads, head_size };

struct Row {
    Role role;
    const char* name;  // "*" stands for the layer's number; a name without it is outside the blocks
    Size rows, columns;
    int tensor_axis;
    Initial initial;
    When when;
    bool norm_bias = false;  // only where the norm is a LayerNorm
};

// In the order of the forward pass. Hugging Face's BLOOM names; names that BLOOM does not have are ours.
constexpr Row rows[] = {
    {Role::token_embedding, "word_embeddings.weight", Size::vocab, Size::hidden, 0, Initial::embedding, When::always},
    {Role::position_embedding, "position_embeddings.weight", Size::context, Size::hidden, -1, Initial::normal, When::learned},
    {Role::embedding_norm_weight, "word_embeddings_layernorm.weight", Size::none, Size::hidden, -1, Initial::ones, When::embedding_norm},
    {Role::embedding_norm_bias, "word_embeddings_layernorm.bias", Size::none, Size::hidden, -1, Initial::zeros, When::embedding_norm, true},
    {Role::norm1_weight, "h.*.input_layernorm.weight", Size::none, Size::hidden, -1, Initial::ones, When::always},
    {Role::norm1_bias, "h.*.input_layernorm.bias", Size::none, Size::hidden, -1, Initial::zeros, When::always, true},
    {Role::qkv_weight, "h.*.self_attention.query_key_value.weight", Size::qkv, Size::hidden, 0, Initial::normal, When::always},
    {Role::qkv_bias, "h.*.self_attention.query_key_value.bias", Size::none, Size::qkv, 0, Initial::zeros, When::bias_all},
    {Role::relative_weight, "h.*.self_attention.relative.weight", Size::inner, Size::hidden, 0, Initial::normal, When::relative},
    {Role::content_bias, "h.*.self_attention.content_bias", Size::heads, Size::head_size, 0, Initial::normal, When::relative},
    {Role::position_bias, "h.*.self_attention.position_bias", Size::heads, Size::head_size, 0, Initial::normal, When::relative},
    {Role::attention_out_weight, "h.*.self_attention.dense.weight", Size::hidden, Size::inner, 1, Initial::residual, When::always},
    {Role::attention_out_bias, "h.*.self_attention.dense.bias", Size::none, Size::hidden, -1, Initial::zeros, When::bias_output},
    {Role::norm2_weight, "h.*.post_attention_layernorm.weight", Size::none, Size::hidden, -1, Initial::ones, When::always},
    {Role::norm2_bias, "h.*.post_attention_layernorm.bias", Size::none, Size::hidden, -1, Initial::zeros, When::always, true},
    {Role::ffn_up_weight, "h.*.mlp.dense_h_to_4h.weight", Size::ffn, Size::hidden, 0, Initial::normal, When::always},
    {Role::ffn_up_bias, "h.*.mlp.dense_h_to_4h.bias", Size::none, Size::ffn, 0, Initial::zeros, When::bias_output},
    {Role::ffn_down_weight, "h.*.mlp.dense_4h_to_h.weight", Size::hidden, Size::ffn, 1, Initial::residual, When::always},
    {Role::ffn_down_bias, "h.*.mlp.dense_4h_to_h.bias", Size::none, Size::hidden, -1, Initial::zeros, When::bias_output},
    {Role::final_norm_weight, "ln_f.weight", Size::none, Size::hidden, -1, Initial::ones, When::always},
    {Role::final_norm_bias, "ln_f.bias", Size::none, Size::hidden, -1, Initial::zeros, When::always, true},
    {Role::head_weight, "lm_head.weight", Size::vocab, Size::hidden, 0, Initial::normal, When::untied},
};

bool applies(const Row& row, const ModelConfig& c) {
    if (row.norm_bias && c.norm != NormKind::layernorm) return false;
    switch (row.when) {
        case When::always: return true;
        case When::embedding_norm: return c.embedding_norm;
        case When::learned: return c.position == Position::learned;
        case When::relative: return c.position == Position::relative;
        case When::bias_all: return c.bias == Bias::all;
        case When::bias_output: return c.bias != Bias::none;
        case When::untied: return !c.tie_embeddings;
    }
    return false;
}

int64_t size_of(Size s, const ModelConfig& c) {
    switch (s) {
        case Size::none: return 0;
        case Size::vocab: return c.vocab;
        case Size::context: return c.context;
        case Size::hidden: return c.hidden;
        case Size::inner: return c.heads * c.head_size;
        case Size::qkv: return 3 * c.heads * c.head_size;
        case Size::ffn: return c.ffn;
        case Size::heads: return c.heads;
        case Size::head_size: return c.head_size;
    }
    return 0;
}

bool in_block(const Row& row) { return std::string_view(row.name).find('*') != std::string_view::npos; }

ParameterClass class_of(const Row& row, bool vector) {
    if (vector) return row.initial == Initial::ones ? ParameterClass::gains : ParameterClass::biases;
    const bool looked_up = row.role == Role::token_embedding || row.role == Role::position_embedding;
    return looked_up ? ParameterClass::embedding : ParameterClass::matrices;
}

Parameter make_parameter(const Row& row, const ModelConfig& c, int64_t layer) {
    std::string name = row.name;
    if (layer >= 0) name.replace(name.find('*'), 1, std::to_string(layer));
    std::vector<int64_t> shape;
    if (row.rows != Size::none) shape.push_back(size_of(row.rows, c));
    shape.push_back(size_of(row.columns, c));
    const bool vector = row.rows == Size::none || row.rows == Size::heads;  // u and v are biases
    Parameter p{row.role, layer, std::move(name), std::move(shape), row.tensor_axis, row.initial, !vector, !vector, class_of(row, vector)};
    p.count = 1;
    for (int64_t s : p.shape) p.count *= s;
    return p;
}

uint32_t name_hash(const std::string& name) {  // FNV-1a
    uint32_t h = 2166136261u;
    for (unsigned char c : name) h = (h ^ c) * 16777619u;
    return h;
}

double standard_deviation(const Parameter& p, const ModelConfig& c) {
    const double residual = p.initial == Initial::residual ? 1 / std::sqrt(2.0 * double(c.layers)) : 1;
    if (c.init == Init::fan_in) return residual / std::sqrt(double(p.shape.back()));
    return residual * c.init_std;
}

float initial_value(const Parameter& p, const ModelConfig& c, double std, uint64_t seed, uint32_t key, int64_t element) {
    if (p.initial == Initial::zeros) return 0;
    if (p.initial == Initial::ones) return 1;
    const auto bits = random_bits(seed, Stream::initialisation, key, 0, uint64_t(element));
    if (p.initial == Initial::embedding && c.init == Init::xavier)
        return float(std::sqrt(6.0 / double(c.vocab + c.hidden)) * (2.0 * uniform(bits[0]) - 1.0));
    return float(std * normal(bits));
}

}  // namespace

ParameterTable::ParameterTable(const ModelConfig& config) : by_role_(size_t((config.layers + 1) * roles), -1), tied_(config.tie_embeddings) {
    const auto add = [&](const Row& row, int64_t layer) {
        if (!applies(row, config)) return;
        Parameter p = make_parameter(row, config, layer);
        p.offset = elements_;
        elements_ += (p.count + 63) / 64 * 64;
        parameters_ += p.count;
        by_role_[size_t((layer + 1) * roles + int(row.role))] = int(all_.size());
        all_.push_back(std::move(p));
    };
    constexpr int count = int(std::size(rows));
    int first_block = 0, end_block = count;
    while (!in_block(rows[first_block])) first_block++;
    while (!in_block(rows[end_block - 1])) end_block--;
    for (int r = 0; r < first_block; r++) add(rows[r], -1);
    for (int64_t layer = 0; layer < config.layers; layer++)
        for (int r = first_block; r < end_block; r++) add(rows[r], layer);
    for (int r = end_block; r < count; r++) add(rows[r], -1);
}

const Parameter* ParameterTable::find(Role role, int64_t layer) const {
    if (role == Role::head_weight && tied_) role = Role::token_embedding;
    const int i = by_role_[size_t((layer + 1) * roles + int(role))];
    return i < 0 ? nullptr : &all_[size_t(i)];
}

Parameters::Parameters(const ParameterTable& t, const Config& config, bool training, Arena& parameters, Arena& gradients, Arena& optimizer)
    : table(t), precision(precision_of(config.precision)), seed_(uint64_t(config.train.seed)) {
    for (const Parameter& p : table.all())
        host_segments_.push_back({.first = p.offset, .count = p.count, .weight_decay = p.decay ? float(config.optimizer.weight_decay) : 0.0f,
                                  .key = name_hash(p.name), .columns = p.shape.size() == 1 ? 0 : p.shape.back(),
                                  .coarse = is_coarse(config.precision, p.kind)});
    const int64_t n = table.element_count(), count = int64_t(host_segments_.size());
    parameters.place(master, precision.master, {n});
    if (precision.has_copy()) parameters.place(copy, precision.copy, {n});
    parameters.place(segments_, Dtype::i32, {count, segment_words});
    if (!training) return;
    gradients.place(grad, Dtype::f32, {n});
    if (config.precision.accumulate == Storage::bf16 || config.precision.reduce == Storage::bf16) gradients.place(low_grad, Dtype::bf16, {n});
    place_optimizer(config, optimizer);
    optimizer.place(changes, Dtype::f32, {count, 3});
}

void Parameters::place_optimizer(const Config& config, Arena& optimizer) {
    const int64_t n = table.element_count(), count = int64_t(host_segments_.size());
    const bool adafactor = config.optimizer.name == OptimizerName::adafactor;
    if (!adafactor || config.optimizer.momentum) optimizer.place(m, dtype_of_storage(config.precision.moments), {n});
    if (!adafactor) return optimizer.place(v, dtype_of_storage(config.precision.moments), {n});
    std::vector<int64_t> totals;
    for (const Parameter& p : table.all()) totals.push_back(p.count);
    const AdafactorLayout& layout = factored.layout.emplace(host_segments_, totals, config.optimizer.min_factored);
    optimizer.place(factored.state, Dtype::f32, {layout.state});
    optimizer.place(factored.squares, Dtype::f32, {count, 3});
    optimizer.place(factored.factors, Dtype::i32, {count, factors_words});
    if (layout.tiles.empty()) return;
    optimizer.place(factored.tiles, Dtype::i32, {int64_t(layout.tiles.size()), tile_words});
    optimizer.place(factored.sums, Dtype::f32, {layout.sums});
}

Weights Parameters::weights(int64_t step) const {
    return {.master = master, .copy = copy, .segments = segments_, .rounding = precision.rounding, .seed = seed_, .step = step};
}

std::vector<NamedTensor> Parameters::named(const std::string& prefix, const Tensor& arena) const {
    std::vector<NamedTensor> all;
    for (const Parameter& p : table.all()) all.push_back({prefix + p.name, slice(arena, p)});
    return all;
}

std::vector<NamedTensor> Parameters::values() const { return named("", master); }

std::vector<NamedTensor> Parameters::optimizer_state() const {
    std::vector<NamedTensor> all;
    if (m.present()) all = named("m.", m);
    if (factored.layout) {
        append_factored_state(all);
    } else {
        const std::vector<NamedTensor> second = named("v.", v);
        all.insert(all.end(), second.begin(), second.end());
    }
    return all;
}

// r.NAME and c.NAME of a factored matrix, v.NAME of what is not factored.
void Parameters::append_factored_state(std::vector<NamedTensor>& to) const {
    const auto part = [&](int64_t first, int64_t n) { return factored.state.reshaped({factored.state.count(), 1}).row_range(first, n); };
    for (size_t k = 0; k < table.all().size(); k++) {
        const Parameter& p = table.all()[k];
        const Factors& f = factored.layout->factors[k];
        if (f.factored()) {
            to.push_back({"r." + p.name, part(f.state, f.rows).reshaped({f.rows})});
            to.push_back({"c." + p.name, part(f.state + f.rows, f.columns).reshaped({f.columns})});
        } else {
            const Tensor v_part = part(f.state, p.count);
            to.push_back({"v." + p.name, p.shape.size() == 1 ? v_part.reshaped({p.count}) : v_part.reshaped({p.shape[0], p.shape[1]})});
        }
    }
}

Tensor Parameters::slice(const Tensor& arena, const Parameter& p) {
    const Tensor part = arena.reshaped({arena.count(), 1}).row_range(p.offset, p.count);
    return p.shape.size() == 1 ? part.reshaped({p.shape[0]}) : part.reshaped({p.shape[0], p.shape[1]});
}

Tensor Parameters::value(Role role, int64_t layer) const {
    const Parameter* p = table.find(role, layer);
    if (!p) return {};
    return slice((p->matrix ? precision.matrix : precision.vector) == precision.master ? master : copy, *p);
}

Tensor Parameters::gradient(Role role, int64_t layer) const {
    const Parameter* p = table.find(role, layer);
    return p ? slice(grad, *p) : Tensor{};
}

void Parameters::initialise(Context& ctx, const ModelConfig& config, uint64_t seed) {
    constexpr int64_t block = 1 << 16;
    std::vector<float> host(block);
    for (const Parameter& p : table.all()) {
        const uint32_t key = name_hash(p.name);
        const double std = standard_deviation(p, config);
        for (int64_t first = 0; first < p.count; first += block) {
            const int64_t n = std::min(block, p.count - first);
#pragma omp parallel for schedule(static) if (n > (1 << 12))
            for (int64_t i = 0; i < n; i++) host[size_t(i)] = initial_value(p, config, std, seed, key, first + i);
            upload_rounded(ctx, slice(master, p).reshaped({p.count, 1}).row_range(first, n), host.data());
        }
    }
    refresh(ctx, 0);
}

void Parameters::refresh(Context& ctx, int64_t step) {
    ctx.device.memory.from_host(ctx, segments_.data, host_segments_.data(), segments_.bytes());
    if (factored.layout) {
        ctx.device.memory.from_host(ctx, factored.factors.data, factored.layout->factors.data(), factored.factors.bytes());
        if (factored.tiles.present()) ctx.device.memory.from_host(ctx, factored.tiles.data, factored.layout->tiles.data(), factored.tiles.bytes());
    }
    ctx.device.optimizer.refresh(ctx, weights(step));
}

void upload_rounded(Context& ctx, Tensor to, const float* values) {
    if (to.dtype == Dtype::f32) return ctx.device.memory.from_host(ctx, to.data, values, to.bytes());
    by_dtype(to.dtype, [&]<class T>(T) {
        std::vector<T> rounded(size_t(to.count()));
        for (size_t i = 0; i < rounded.size(); i++) rounded[i] = from_float<T>(values[i]);
        ctx.device.memory.from_host(ctx, to.data, rounded.data(), to.bytes());
    });
}

}  // namespace clover

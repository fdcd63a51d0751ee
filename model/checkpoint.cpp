#include "checkpoint.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "../data/text_source.h"
#include "checkpoint_directory.h"
#include "safetensors.h"

namespace clover {
namespace {

using nlohmann::json;
constexpr int format_version = 1;

std::string dtype_name(Dtype d) { return d == Dtype::f32 ? "F32" : "BF16"; }

void write_tensors(Context& ctx, CheckpointWriter& writer, const char* file, const std::vector<NamedTensor>& tensors) {
    std::vector<SafetensorsEntry> entries;
    for (const NamedTensor& t : tensors) {
        SafetensorsEntry entry;
        entry.name = t.name, entry.dtype = dtype_name(t.values.dtype), entry.shape.assign(t.values.shape.begin(), t.values.shape.begin() + t.values.rank);
        entries.push_back(std::move(entry));
    }
    SafetensorsWriter out(writer.path(file), std::move(entries), {{"format", "clover"}});
    std::vector<char> host(1 << 20);
    for (const NamedTensor& t : tensors)
        for (size_t done = 0; done < t.values.bytes();) {
            const size_t n = std::min(host.size(), t.values.bytes() - done);
            ctx.device.memory.to_host(ctx, host.data(), static_cast<char*>(t.values.data) + done, n);
            out.write(host.data(), n);
            done += n;
        }
    writer.add(file, out.finish());
}

/// A part of a file of "F32" or "BF16" as floats.
std::vector<float> floats_of(const std::string& dtype, const unsigned char* part, size_t bytes) {
    std::vector<float> values(bytes / (dtype == "F32" ? sizeof(float) : sizeof(bf16)));
    if (dtype == "F32") {
        std::memcpy(values.data(), part, bytes);
        return values;
    }
    std::vector<bf16> low(values.size());
    std::memcpy(low.data(), part, bytes);
    std::transform(low.begin(), low.end(), values.begin(), [](bf16 x) { return to_float(x); });
    return values;
}

/// `other_dtype`: what is stored in f32 may be wanted in bf16, and the other way round.
void read_tensors(Context& ctx, const std::string& path, const std::vector<NamedTensor>& tensors, bool other_dtype) {
    const SafetensorsFile file(path);
    require(file.entries().size() == tensors.size(), path, ": holds ", file.entries().size(), " tensors, the model has ", tensors.size(),
            "; is it a checkpoint of this config?");
    for (const NamedTensor& t : tensors) {
        const SafetensorsEntry& e = file.at(t.name);
        const bool same_shape = std::equal(e.shape.begin(), e.shape.end(), t.values.shape.begin(), t.values.shape.begin() + t.values.rank);
        const bool same_dtype = e.dtype == dtype_name(t.values.dtype);
        require(same_shape && (same_dtype || (other_dtype && (e.dtype == "F32" || e.dtype == "BF16"))), path, ": tensor ", e.name, " is ", e.dtype, " of ",
                e.end - e.begin, " bytes, the config makes it ", t.values.describe(), "; use the config that the checkpoint was made with");
        const Tensor flat = t.values.reshaped({t.values.count(), 1});
        int64_t done = 0;
        file.for_parts(e, [&](const unsigned char* part, size_t bytes) {
            const int64_t n = int64_t(bytes / (e.dtype == "F32" ? sizeof(float) : sizeof(bf16)));
            const Tensor to = flat.row_range(done, n);
            if (same_dtype) ctx.device.memory.from_host(ctx, to.data, part, bytes);
            else upload_rounded(ctx, to, floats_of(e.dtype, part, bytes).data());
            done += n;
        });
    }
}

json to_json(const LossScale& s) { return {{"value", s.value}, {"clean", s.clean}, {"patience", s.patience}, {"skipped", s.skipped}}; }
LossScale loss_scale_from(const json& j) {
    LossScale s;
    s.value = j.at("value").get<double>(), s.clean = j.at("clean").get<int64_t>(), s.patience = j.at("patience").get<int64_t>(), s.skipped = j.at("skipped").get<int64_t>();
    return s;
}

// The three counts follow from each other; others than these would draw samples that are not there.
void check_progress(const CheckpointInfo& info, const std::string& path) {
    const Progress& p = info.progress;
    const TrainConfig& t = info.config.train;
    const LossScale& s = p.loss_scale;
    const bool scale = s.value >= LossScaleConfig::least && s.value <= LossScaleConfig::most && s.clean >= 0 && s.patience >= 0 && s.skipped >= 0 && s.skipped <= p.step;
    const bool possible = p.step >= 0 && p.step <= t.steps && scale;
    require(possible && p.samples == samples_after(t.ramp_up, t.global_batch, p.step) && p.tokens == p.samples * info.config.model.context, path,
            ": step ", p.step, ", ", p.samples, " samples, ", p.tokens, " tokens and the loss scale do not fit config.toml; the file is damaged, take another checkpoint");
}

}  // namespace

std::string save_checkpoint(Context& ctx, const std::string& checkpoints, const Config& config, const Parameters& parameters,
                            const Progress& progress, const Tokenizer* tokenizer, const std::string& data) {
    CheckpointWriter writer(checkpoints, progress.step);
    writer.add_text("config.toml", to_toml(config));
    const json state{{"format", format_version}, {"step", progress.step}, {"samples", progress.samples},
                     {"tokens", progress.tokens}, {"loss_scale", to_json(progress.loss_scale)}, {"tokenizer", tokenizer ? tokenizer->fingerprint() : ""}, {"data", data}};
    writer.add_text("state.json", state.dump(1) + "\n");
    if (tokenizer && !tokenizer->file().name.empty()) writer.add_text(tokenizer->file().name, tokenizer->file().contents);
    write_tensors(ctx, writer, "parameters.safetensors", parameters.values());
    write_tensors(ctx, writer, "optimizer.safetensors", parameters.optimizer_state());
    return writer.commit(config.checkpoint.keep);
}

CheckpointInfo read_checkpoint(const std::string& folder) {
    verify_checkpoint(folder);
    CheckpointInfo info;
    info.folder = folder;
    info.config = parse_config(read_text_file(folder + "/config.toml"), folder + "/config.toml", {});
    const std::string path = folder + "/state.json";
    try {
        const json state = json::parse(read_text_file(path));
        require(state.at("format").get<int>() == format_version, path, ": format ", state.at("format").dump(), ", this program reads ", format_version);
        info.progress = {state.at("step").get<int64_t>(), state.at("samples").get<int64_t>(), state.at("tokens").get<int64_t>(), {}};
        if (state.contains("loss_scale")) info.progress.loss_scale = loss_scale_from(state["loss_scale"]);
        check_progress(info, path);
        info.tokenizer = state.at("tokenizer").get<std::string>();
        info.data = state.value("data", "");
        info.tokenizer_spec = "bytes";
        for (const char* name : {"tokenizer.json", "tokenizer.model"})
            if (std::filesystem::exists(folder + "/" + name)) info.tokenizer_spec = folder + "/" + name;
    } catch (const json::exception& e) {
        throw InputError(text(path, ": ", e.what()));
    }
    return info;
}

void load_parameters(Context& ctx, const CheckpointInfo& checkpoint, Parameters& parameters, bool optimizer) {
    read_tensors(ctx, checkpoint.folder + "/parameters.safetensors", parameters.values(), !optimizer);
    if (optimizer) read_tensors(ctx, checkpoint.folder + "/optimizer.safetensors", parameters.optimizer_state(), false);
    parameters.refresh(ctx, checkpoint.progress.step);
}

}  // namespace clover

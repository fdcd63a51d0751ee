// Symbols by addr2line, which every installation of g++ has (binutils). One process answers all questions.
#include "symbols.h"

#include <link.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <map>

#include "internal.h"

namespace simt {

namespace {

struct Frame {
    std::string function, place;  // "file:line"
};

/// What was added to the addresses of the program's file when it was loaded.
uintptr_t load_bias() {
    uintptr_t bias = 0;
    dl_iterate_phdr([](dl_phdr_info* info, size_t, void* out) { *static_cast<uintptr_t*>(out) = info->dlpi_addr; return 1; }, &bias);
    return bias;
}

struct Addr2line {
    FILE *to = nullptr, *from = nullptr;

    Addr2line() {
        int in[2], out[2];
        char exe[4096];
        const ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
        if (n <= 0 || pipe(in) || pipe(out)) return;
        exe[n] = 0;
        const pid_t child = fork();
        if (child == 0) {
            dup2(in[0], 0);
            dup2(out[1], 1);
            for (int f : {in[0], in[1], out[0], out[1]}) close(f);
            execlp("addr2line", "addr2line", "-a", "-i", "-f", "-C", "-e", exe, static_cast<char*>(nullptr));
            _exit(127);
        }
        close(in[0]);
        close(out[1]);
        if (child < 0) return;
        to = fdopen(in[1], "w");
        from = fdopen(out[0], "r");
    }
    bool line(std::string& s) {
        s.clear();
        for (int c; (c = std::fgetc(from)) != EOF;) {
            if (c == '\n') return true;
            s += char(c);
        }
        return false;
    }
    /// Innermost first. Address 0, which has no symbol, marks the end of the answer.
    std::vector<Frame> ask(uintptr_t address) {
        std::vector<Frame> frames;
        std::fprintf(to, "0x%lx\n0x0\n", static_cast<unsigned long>(address));
        std::fflush(to);
        std::string s, place;
        if (!line(s)) return frames;
        while (line(s) && line(place)) {
            if (s.starts_with("0x") && place == "??") {
                line(place);
                break;
            }
            frames.push_back({s, place});
        }
        return frames;
    }
};

/// "/a/b/kernels/x.cu:12 (discriminator 3)" without the folders in front and the discriminator.
std::string short_place(std::string s) {
    s = s.substr(0, s.find(" (discriminator"));
    const size_t slash = s.rfind('/');
    return slash == std::string::npos ? s : s.substr(slash + 1);
}

const std::vector<Frame>& frames_of(uintptr_t address) {
    static Addr2line tool;
    static std::map<uintptr_t, std::vector<Frame>> known;
    const auto [at, fresh] = known.try_emplace(address);
    if (fresh && tool.to && tool.from) at->second = tool.ask(address - load_bias());
    return at->second;
}

/// The frames of kernel code, without those of the words and instructions that it used.
std::vector<std::string> places_of(const void* place) {
    std::vector<std::string> places;
    for (const Frame& f : frames_of(reinterpret_cast<uintptr_t>(place) - 1)) {
        const std::string s = short_place(f.place);
        if (s.starts_with("cuda_runtime.h:") || s.starts_with("ptx.cuh:") || f.place.find("/include/c++/") != std::string::npos) continue;
        if (places.empty() || places.back() != s) places.push_back(s);
    }
    return places;
}

}  // namespace

std::string kernel_name(const void* kernel) {
    const std::vector<Frame>& frames = frames_of(reinterpret_cast<uintptr_t>(kernel));
    if (frames.empty()) return "kernel";
    std::string s = frames.back().function;
    // Cut the parameter list: from the last '(' at depth 0 that is not part of "(anonymous namespace)".
    for (size_t at; (at = s.find("(anonymous namespace)::")) != std::string::npos;) s.erase(at, 23);
    int depth = 0;
    size_t begin = 0, end = s.size();
    for (size_t i = 0; i < s.size(); i++) {
        if (s[i] == '<') depth++;
        if (s[i] == '>') depth--;
        if (depth != 0) continue;
        if (s[i] == ' ' || (s[i] == ':' && i + 1 < s.size() && s[i + 1] != ':')) begin = i + 1;
        if (s[i] == '(') {
            end = i;
            break;
        }
    }
    return s.substr(begin, end - begin);
}

std::string source_line(const void* place) {
    const std::vector<std::string> places = places_of(place);
    if (places.empty()) return "an unknown place";
    std::string s = places[0];
    for (size_t i = 1; i < places.size() && i < 4; i++) s += (i == 1 ? " (called at " : ", ") + places[i];
    return places.size() > 1 ? s + ")" : s;
}

bool same_source(const void* a, const void* b) {
    static std::map<std::pair<const void*, const void*>, bool> known;
    if (a == b) return true;
    const auto [at, fresh] = known.try_emplace({a, b});
    if (fresh) at->second = places_of(a) == places_of(b);
    return at->second;
}

std::string text_of(uint3 v) {
    char text[48];
    std::snprintf(text, sizeof text, "(%u,%u,%u)", v.x, v.y, v.z);
    return text;
}

}  // namespace simt

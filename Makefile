# Clover. `make help` lists the commands.
#
# Overridable: CXX, ARCH (instruction set flags), SAN=1 (AddressSanitizer and UBSan) or SAN=thread, BUILD (folder of the objects),
# JOBS (compilers, and runs of experiments, at a time); CUDA and GPU_ARCH (cuda.mk).

CXX      ?= g++
ARCH     ?= -march=native
SAN      ?=
BUILD    ?= build$(if $(SAN),-san$(SAN))
JOBS     ?= $(shell nproc)

comma := ,
empty :=

WARNINGS := -Wall -Wextra -Werror -Wno-psabi
CXXFLAGS += -std=c++20 -O3 -g1 $(ARCH) -fopenmp -MMD -MP $(WARNINGS)
LDLIBS   += -ldnnl -lz -lpcre2-8 -lutf8proc -fopenmp -pthread -ldl
ifeq ($(SAN),1)
CXXFLAGS += -O1 -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
LDFLAGS  += -fsanitize=address,undefined
else ifeq ($(SAN),thread)
CXXFLAGS += -O1 -fsanitize=thread
LDFLAGS  += -fsanitize=thread
endif

SOURCES  ?= $(wildcard kernels/*.cpp optim/*.cpp data/*.cpp comm/*.cpp model/*.cpp report/*.cpp)
TESTS    ?= $(wildcard tests/*.cpp)
OBJECTS  := $(SOURCES:%.cpp=$(BUILD)/%.o)
TEST_OBJECTS := $(TESTS:%.cpp=$(BUILD)/%.o)

# These only call others, or build nothing: what is installed is asked for when something is built.
EXPERIMENTS := $(patsubst ablations/%/experiment.toml,%,$(wildcard ablations/*/experiment.toml))
CALLERS := all deps ablations $(EXPERIMENTS:%=ablation-%) test-packages corpus-packages corpus demo demo-gopher test bench simt bench-simt cuda-report gpu-check fuzz clean help
BUILDS  := $(filter-out $(CALLERS),$(or $(MAKECMDGOALS),all))
.DEFAULT_GOAL := all
.PHONY: $(CALLERS)
include cuda.mk

all: deps ## install what is missing, build ./clover
	@$(MAKE) --no-print-directory -j$(JOBS) clover

clover: $(BUILD)/clover
	@cp -f $< $@

$(BUILD)/clover: $(BUILD)/train.o $(OBJECTS) $(CUDA_OBJECTS) $(CUDA_MK)
	@echo '  link $@'; $(CXX) $(LDFLAGS) $(filter %.o,$^) $(LDLIBS) $(CUDA_LINK) -o $@
	@echo '$(CUDA_SAYS)'

$(BUILD)/tests/run: $(TEST_OBJECTS) $(OBJECTS) $(SIMT_OBJECTS) $(SIMT_TEST_OBJECTS)
	@echo '  link $@'; $(CXX) $(LDFLAGS) $^ $(LDLIBS) $(SIMT_LIBS) -o $@

$(BUILD)/%.o: %.cpp
	@mkdir -p $(@D)
	@echo '  compile $<'; $(CXX) $(CXXFLAGS) -c $< -o $@

# The script and the style of the report's page, as string literals.
$(BUILD)/report/%.inc: report/%
	@mkdir -p $(@D)
	@{ echo 'R"~~~('; cat $<; echo ')~~~"'; } > $@
$(BUILD)/report/page.o: $(BUILD)/report/page.js.inc $(BUILD)/report/page.css.inc
$(BUILD)/report/page.o: CXXFLAGS += -I$(BUILD)/report

# train.cu holds no CUDA code of its own: for the CPU it is C++.
$(BUILD)/train.o: train.cu
	@mkdir -p $(@D)
	@echo '  compile $<'; $(CXX) $(CXXFLAGS) -x c++ -c $< -o $@

-include $(OBJECTS:.o=.d) $(TEST_OBJECTS:.o=.d) $(BUILD)/train.d

# ---- Packages ------------------------------------------------------------------------------------------------------------------

PACKAGES := g++ libdnnl-dev nlohmann-json3-dev libtomlplusplus-dev libcli11-dev doctest-dev zlib1g-dev libboost-context-dev libpcre2-dev libutf8proc-dev sentencepiece
TEST_PACKAGES := chromium
CORPUS_PACKAGES := installation-guide-amd64 \
    $(addprefix debian-reference-,de en es fr id it ja pt pt-br zh-cn zh-tw)

# $(call install,packages,what for,required or optional)
define install
missing=""; for p in $(1); do dpkg -s $$p >/dev/null 2>&1 || missing="$$missing $$p"; done; \
[ -z "$$missing" ] && exit 0; \
command -v apt-get >/dev/null || { echo "apt-get is not here; install by hand, $(2):$$missing" >&2; exit 1; }; \
sudo=""; [ "$$(id -u)" = 0 ] || sudo=sudo; \
echo "Installing Debian packages, $(2):$$missing"; \
ls /var/lib/apt/lists/*_Packages* >/dev/null 2>&1 || $$sudo apt-get update -q || exit 1; \
found=""; for p in $$missing; do \
    apt-cache show $$p >/dev/null 2>&1 && found="$$found $$p" || echo "apt knows no package $$p ($(3))"; done; \
[ "$(3)" = optional ] || [ "$$found" = "$$missing" ] || exit 1; \
[ -z "$$found" ] || $$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $$found
endef

deps: ## install the Debian packages that building needs
	@$(call install,$(PACKAGES),for building and testing,required)

# Ubuntu has its browser elsewhere than in apt; the tests say what to do without one.
test-packages:
	@$(call install,$(TEST_PACKAGES),for the tests: a browser to open the report's page in,optional)

corpus-packages:
	@$(call install,$(CORPUS_PACKAGES),the text of the demo: manuals in many languages,optional)

# ---- Commands ------------------------------------------------------------------------------------------------------------------

corpus: all corpus-packages ## turn manuals and source code on this machine into demo/corpus
	@[ -e demo/corpus/en.valid.jsonl ] || ./clover corpus configs/corpus-debian.toml --out demo/corpus

# The languages of the two demo configs.
DEMO := en de fr es it pt ja zh-cn cpp perl

demo: corpus ## build, prepare a corpus, train a tokenizer and a small BLOOM on it, show what it learned
	./clover tokenizer train --vocab 16384 --out demo/tokenizer.json $(DEMO:%=demo/corpus/%.train.jsonl)
	@rm -rf demo/bloom
	./clover train configs/demo-bloom.toml --out demo/bloom
	@echo; echo "Continue a text of your own:  ./clover generate --checkpoint demo/bloom --prompt 'The installer'"

demo-gopher: corpus ## the same with a small Gopher, a SentencePiece tokenizer made by Debian's spm_train, and languages mixed by weight
	@[ -e demo/tokenizer.model ] || spm_train --model_type=bpe --vocab_size=16000 --byte_fallback=true --normalization_rule_name=nfkc \
	    --remove_extra_whitespaces=false --character_coverage=0.9995 --input=$(subst $(empty) $(empty),$(comma),$(DEMO:%=demo/corpus/%.train.txt)) \
	    --model_prefix=demo/tokenizer --input_sentence_size=100000 --shuffle_input_sentence=true --minloglevel=1
	@rm -rf demo/gopher
	./clover train configs/demo-gopher.toml --out demo/gopher
	@echo; echo "Continue a text of your own:  ./clover generate --checkpoint demo/gopher --prompt 'The installer'"

test: deps test-packages ## build and run every test; ends with "N passed, M failed"
	@$(MAKE) --no-print-directory -j$(JOBS) tested
	CLOVER=$(BUILD)/clover GPU_CHECK=$(BUILD)/gpu-check-simt CUDA_KERNELS=$(BUILD)/cuda/kernels.tsv $(BUILD)/tests/run

bench: all ## speed of training steps against this machine's matrix-product peak
	@for c in 10m 124m gopher-10m gopher-124m; do for r in fp32 bf16-master; do \
	    ./clover bench train configs/bench-$$c.toml --set precision.recipe=$$r || exit 1; done; done

# VARIANT=relative for another variant, QUICK=1 to check the machinery alone, JOBS=1 for one run at a time.
ABLATION = ./clover ablation --jobs $(JOBS) $(VARIANT:%=--variant %) $(if $(QUICK),--quick)

ablations: corpus ## repeat the papers' experiments, one after the other; QUICK=1 only checks the machinery, JOBS=N runs at a time
	@for e in $(EXPERIMENTS); do $(ABLATION) ablations/$$e || exit 1; done

$(EXPERIMENTS:%=ablation-%): ablation-%: corpus
	@$(ABLATION) ablations/$*

simt: deps ## build ./clover-simt: the program with its device cuda run by the harness, on the CPU
	@$(MAKE) --no-print-directory -j$(JOBS) clover-simt

bench-simt: deps ## what every CUDA kernel moves, counted by the harness: bytes, sectors, bank conflicts
	@$(MAKE) --no-print-directory -j$(JOBS) $(BUILD)/count-traffic
	$(BUILD)/count-traffic

cuda-report: deps ## registers, shared memory, spills and theoretical occupancy of every CUDA kernel
	@$(MAKE) --no-print-directory -j$(JOBS) $(BUILD)/cuda/report.txt
	@cat $(BUILD)/cuda/report.txt

# Four minutes for the suite, four for the measurements; the build comes first.
gpu-check: deps ## on a machine with a GPU (GPU_ARCH=sm_90a): the suite, open questions, speed; writes gpu-report.json and .md
	@$(MAKE) --no-print-directory -j$(JOBS) BUILD=$(BUILD)-gpu GPU_ARCH='$(if $(filter file,$(origin GPU_ARCH)),sm_90a,$(GPU_ARCH))' gpu-checked

# The readers of files that anybody may have made, each fed with mutations of its seeds (tests/fuzz/fuzz.h says what counts as a finding).
FUZZ_SECONDS ?= 600
FUZZ         ?= $(patsubst tests/fuzz/%.cpp,%,$(wildcard tests/fuzz/*.cpp))
FUZZ_SOURCES := $(filter data/% model/config% model/presets.cpp model/safetensors.cpp optim/% report/run_data.cpp,$(SOURCES))

fuzz: deps ## feed every reader of files with broken ones, FUZZ_SECONDS (600) each; FUZZ="config documents" chooses
	@$(call install,clang,for fuzzing (libFuzzer),required)
	@$(MAKE) --no-print-directory -j$(JOBS) $(FUZZ:%=build-fuzz/%)
	@found=0; for t in $(FUZZ); do mkdir -p build-fuzz/corpus/$$t tests/fuzz/seeds/$$t; echo "fuzzing $$t for $(FUZZ_SECONDS) s"; \
	    build-fuzz/$$t -max_total_time=$(FUZZ_SECONDS) -timeout=10 -rss_limit_mb=4096 -artifact_prefix=build-fuzz/$$t- -print_final_stats=1 \
	        build-fuzz/corpus/$$t tests/fuzz/seeds/$$t >build-fuzz/$$t.log 2>&1 && grep number_of_executed build-fuzz/$$t.log || { found=$$((found + 1)); tail -n 40 build-fuzz/$$t.log; }; \
	    rm -f /dev/shm/clover-fuzz-*; done; echo "$(words $(FUZZ)) targets, $$found findings"; [ $$found = 0 ]

build-fuzz/%.o: %.cpp
	@mkdir -p $(@D)
	@echo '  compile $< by clang'; clang++ -std=c++20 -O1 -g -MMD -MP -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined -c $< -o $@

$(FUZZ:%=build-fuzz/%): build-fuzz/%: build-fuzz/tests/fuzz/%.o $(FUZZ_SOURCES:%.cpp=build-fuzz/%.o)
	@echo '  link $@'; clang++ -fsanitize=fuzzer,address,undefined $^ -lz -lpcre2-8 -lutf8proc -pthread -o $@

-include $(FUZZ_SOURCES:%.cpp=build-fuzz/%.d) $(FUZZ:%=build-fuzz/tests/fuzz/%.d)

clean: ## remove everything that was built
	rm -rf build build-san* build-gpu build-fuzz clover clover-simt

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | awk -F'\t' '{printf "  make %-12s %s\n", $$1, $$2}'
	@echo; echo "  ./clover --help lists the program's own commands; SAN=1 builds with AddressSanitizer and UBSan, CUDA=none without CUDA."

# CUDA: finding the toolkit, compiling the .cu files by nvcc, and the harness (tests/simt/) that runs them on the CPU.
#
# Overridable: CUDA=/path of the toolkit (CUDA=none: build without), GPU_ARCH="sm_80 sm_90a" (each also as PTX, but for those with an a).

# ---- The toolkit ---------------------------------------------------------------------------------------------------------------

# What counts is that a program compiles and links. The answer is kept in $(BUILD)/cuda/found.mk, until the question changes.
define CUDA_PROBE
#include <cublasLt.h>
#include <cuda_runtime.h>
int main() { int n = 0; return int(cudaGetDeviceCount(&n)) + int(cublasLtGetVersion() == 0); }
endef
export CUDA_PROBE

GPU_ARCH ?= sm_80 sm_90a
GENCODE  := $(foreach a,$(GPU_ARCH:sm_%=%),-gencode 'arch=compute_$a,code=[sm_$a$(if $(filter %a,$a),,$(comma)compute_$a)]')

ifneq ($(filter none,$(CUDA))$(SAN),)
NVCC :=
NO_CUDA := $(if $(SAN),SAN=$(SAN) builds without it,CUDA=none)
else ifneq ($(CUDA),)
NVCC := $(or $(wildcard $(CUDA)/bin/nvcc),$(error CUDA=$(CUDA): there is no bin/nvcc in it))
else
NVCC := $(firstword $(shell command -v nvcc) $(wildcard /usr/local/cuda/bin/nvcc /opt/cuda/bin/nvcc))
NO_CUDA := nvcc is not in PATH, /usr/local/cuda or /opt/cuda; CUDA=/path says where it is
endif

CUDA_HOME     :=
CUDA_MK       := $(BUILD)/cuda/found.mk
CUDA_QUESTION := $(strip $(NVCC) $(GPU_ARCH) $(CXX))
ifneq ($(BUILDS),)
include $(CUDA_MK)
endif
ifneq ($(CUDA_ANSWERS),$(CUDA_QUESTION))
$(CUDA_MK): ask
endif
.PHONY: ask

# Sets CUDA_HOME where it is found (what the environment calls so does not count), CUDA_LINK to what the linker needs, CUDA_SAYS to one line for the user.
$(CUDA_MK):
	@mkdir -p $(@D); cd $(@D); echo 'CUDA_ANSWERS := $(CUDA_QUESTION)' >found.new; \
	if [ -z '$(NVCC)' ]; then \
	    echo 'CUDA_SAYS := no CUDA ($(NO_CUDA)): only the device cpu is built' >>found.new; \
	elif printf '%s\n' "$$CUDA_PROBE" >probe.cu; $(NVCC) -ccbin $(CXX) -std=c++20 $(GENCODE) probe.cu -o probe -lcublasLt >probe.txt 2>&1; then \
	    home=$$(dirname $$(dirname $(NVCC))); version=$$($(NVCC) --version | sed -n 's/.*release \([0-9.]*\).*/\1/p'); \
	    folders=$$($(NVCC) --dryrun probe.cu 2>&1 | sed -n 's/^#\$$ LIBRARIES=//p' | tr -d '"'); \
	    echo "CUDA_HOME := $$home" >>found.new; \
	    echo "CUDA_LINK := $$folders $$(echo $$folders | sed 's/-L[^ ]*stubs//; s/-L/-Wl,-rpath,/g') -lcudart_static -lrt" >>found.new; \
	    echo "CUDA_SAYS := CUDA $$version at $$home (probe compiled and linked): the device cuda is built for $(GPU_ARCH)" >>found.new; \
	else \
	    why=$$(grep -m1 -iE 'error|cannot|unsupported' probe.txt || head -n 1 probe.txt); why=$$(printf '%s' "$$why" | tr -d "#$$:'\"\\\\\`"); \
	    [ -z '$(CUDA)' ] || { echo "CUDA=$(CUDA): the probe does not compile and link: $$why" >&2; exit 1; }; \
	    echo "CUDA_SAYS := no CUDA (the probe does not compile and link with $(NVCC); $$why): only the device cpu is built" >>found.new; \
	fi; mv found.new found.mk

# ---- Compiling by nvcc ---------------------------------------------------------------------------------------------------------

CU_SOURCES ?= $(wildcard kernels/*.cu comm/*.cu)
CU_TESTS   ?= $(wildcard tests/*.cu)
CUDA_OBJECTS := $(if $(CUDA_HOME),$(CU_SOURCES:%.cu=$(BUILD)/cuda/%.o))

NVCCFLAGS := -ccbin $(CXX) -std=c++20 --expt-relaxed-constexpr -O3 -lineinfo $(GENCODE) -MMD -MP \
             -Werror all-warnings -Xptxas -v -Xcompiler -Wall,-Wextra,-Werror

# What ptxas says is kept: registers and spills for the report. Its remarks on instructions that it serialises (C75xx) are errors here.
$(BUILD)/cuda/%.o: %.cu $(CUDA_MK)
	@mkdir -p $(@D)
	@echo '  compile $< by nvcc'
	@$(NVCC) $(NVCCFLAGS) -MF $(@:.o=.d) -c $< -o $@ >$(@:.o=.ptxas) 2>&1 && ! grep -q 'C75[0-9][0-9]' $(@:.o=.ptxas) || \
	    { grep -v 'ptxas info\|bytes stack frame' $(@:.o=.ptxas) >&2; rm -f $@; exit 1; }

# One line per kernel and architecture: kernel, architecture, registers, bytes of stack, bytes spilled, bytes of static shared memory.
$(BUILD)/cuda/kernels.tsv: $(CUDA_OBJECTS) tests/gpu/kernels.awk
	@awk -f tests/gpu/kernels.awk $(CUDA_OBJECTS:.o=.ptxas) | c++filt | sort >$@

# ---- The harness: the same sources as C++ (tests/simt/simt.h) ------------------------------------------------------------------

# Its __tsan functions take the place of libtsan's, so SAN=thread goes without.
ifneq ($(SAN),thread)
SIMT_SOURCES ?= $(filter-out tests/simt/test_%,$(wildcard tests/simt/*.cpp))
SIMT_TESTS   ?= $(wildcard tests/simt/test_*.cpp tests/simt/test_*.cu)
SIMT_OBJECTS := $(SIMT_SOURCES:%.cpp=$(BUILD)/%.o) $(CU_SOURCES:%.cu=$(BUILD)/simt/%.o)
SIMT_TEST_OBJECTS = $(patsubst %.cu,$(BUILD)/simt/%.o,$(patsubst %.cpp,$(BUILD)/%.o,$(SIMT_TESTS))) $(CU_TESTS:%.cu=$(BUILD)/simt/%.o) \
                     $(if $(filter tests/test_gpu_tools.cu,$(CU_TESTS)),$(SIMT_TOOLS))
SIMT_TOOLS   = $(BUILD)/tests/gpu/workloads.o $(BUILD)/simt/tests/gpu/gpu.o $(BUILD)/simt/tests/gpu/probes.o
SIMT_LIBS    := -lboost_context
endif
SIMT_FLAGS   := -std=c++20 -O2 -g -fsanitize=thread -ffp-contract=off -fno-tree-vectorize -Itests/simt -MMD -MP $(WARNINGS) -Wno-unknown-pragmas

$(BUILD)/simt/%.o: %.cu
	@mkdir -p $(@D)
	@echo '  compile $< for the harness'; $(CXX) $(SIMT_FLAGS) -x c++ -c $< -o $@

$(BUILD)/tests/simt/%.o: tests/simt/%.cpp
	@mkdir -p $(@D)
	@echo '  compile $<'; $(CXX) $(CXXFLAGS) -ffp-contract=off -Itests/simt -c $< -o $@

$(BUILD)/clover-simt: $(BUILD)/train.o $(OBJECTS) $(SIMT_OBJECTS)
	@echo '  link $@'; $(CXX) $(LDFLAGS) $^ $(LDLIBS) $(SIMT_LIBS) -o $@

clover-simt: $(BUILD)/clover-simt
	@cp -f $< $@

# ---- Measuring (tests/gpu/) ----------------------------------------------------------------------------------------------------

# On a GPU: the suites against the real device, and the program that asks and times it.
$(BUILD)/tests/run-gpu: $(TEST_OBJECTS) $(OBJECTS) $(CUDA_OBJECTS) $(CU_TESTS:%.cu=$(BUILD)/cuda/%.o)
$(BUILD)/gpu-check: $(BUILD)/tests/gpu/gpu_check.o $(BUILD)/tests/gpu/workloads.o $(OBJECTS) $(CUDA_OBJECTS) \
                    $(BUILD)/cuda/tests/gpu/gpu.o $(BUILD)/cuda/tests/gpu/probes.o
$(BUILD)/tests/run-gpu $(BUILD)/gpu-check:
	$(if $(CUDA_HOME),,$(error $@ needs nvcc: $(CUDA_SAYS)))
	@echo '  link $@'; $(CXX) $(LDFLAGS) $^ $(LDLIBS) $(CUDA_LINK) -o $@

gpu-checked: $(BUILD)/clover $(BUILD)/tests/run-gpu $(BUILD)/gpu-check
	$(BUILD)/gpu-check --look
	-CLOVER=$(BUILD)/clover timeout 240 $(BUILD)/tests/run-gpu -tse="report page" 2>&1 | tee $(BUILD)/suite.txt
	$(BUILD)/gpu-check --suite $(BUILD)/suite.txt --seconds 180 --command 'make gpu-check GPU_ARCH="$(GPU_ARCH)"'

# In the harness: the same program, small, and the counters.
$(BUILD)/gpu-check-simt: $(BUILD)/tests/gpu/gpu_check.o
$(BUILD)/count-traffic: $(BUILD)/tests/gpu/count_traffic.o
$(BUILD)/gpu-check-simt $(BUILD)/count-traffic: $(SIMT_TOOLS) $(OBJECTS) $(SIMT_OBJECTS)
	@echo '  link $@'; $(CXX) $(LDFLAGS) $^ $(LDLIBS) $(SIMT_LIBS) -o $@

$(BUILD)/cuda/launches.tsv: $(BUILD)/count-traffic
	@$< --launches $@ >$(BUILD)/cuda/traffic.txt

$(BUILD)/cuda/report.txt: tests/gpu/report.awk $(BUILD)/cuda/launches.tsv $(BUILD)/cuda/kernels.tsv
	@awk -f $^ >$@

# What `make test` runs and reads.
tested: $(BUILD)/clover $(BUILD)/tests/run $(if $(SIMT_OBJECTS),$(BUILD)/gpu-check-simt) $(if $(CUDA_HOME),$(BUILD)/cuda/kernels.tsv)
.PHONY: tested gpu-checked

-include $(CUDA_OBJECTS:.o=.d) $(SIMT_OBJECTS:.o=.d) $(SIMT_TEST_OBJECTS:.o=.d) $(CU_TESTS:%.cu=$(BUILD)/cuda/%.d)
-include $(wildcard $(BUILD)/tests/gpu/*.d $(BUILD)/*/tests/gpu/*.d)

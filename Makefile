# Clover. `make help` lists the commands.
#
# Overridable: CXX, ARCH (instruction set flags), SAN=1 (AddressSanitizer and UBSan) or SAN=thread, BUILD (folder of the objects).

CXX      ?= g++
ARCH     ?= -march=native
SAN      ?=
BUILD    ?= build$(if $(SAN),-san$(SAN))
JOBS     ?= $(shell nproc)

WARNINGS := -Wall -Wextra -Werror
CXXFLAGS += -std=c++20 -O3 -g1 $(ARCH) -fopenmp -MMD -MP $(WARNINGS)
LDLIBS   += -ldnnl -lz -fopenmp -pthread
ifeq ($(SAN),1)
CXXFLAGS += -O1 -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
LDFLAGS  += -fsanitize=address,undefined
else ifeq ($(SAN),thread)
CXXFLAGS += -O1 -fsanitize=thread
LDFLAGS  += -fsanitize=thread
endif

SOURCES  ?= $(wildcard kernels/*.cpp optim/*.cpp data/*.cpp comm/*.cpp model/*.cpp)
TESTS    ?= $(wildcard tests/*.cpp)
OBJECTS  := $(SOURCES:%.cpp=$(BUILD)/%.o)
TEST_OBJECTS := $(TESTS:%.cpp=$(BUILD)/%.o)

.DEFAULT_GOAL := all
.PHONY: all
all: ## build ./clover
	@$(MAKE) --no-print-directory -j$(JOBS) clover

clover: $(BUILD)/clover
	@cp -f $< $@

$(BUILD)/clover: $(BUILD)/train.o $(OBJECTS)
	@echo '  link $@'; $(CXX) $(LDFLAGS) $^ $(LDLIBS) -o $@

$(BUILD)/tests/run: $(TEST_OBJECTS) $(OBJECTS)
	@echo '  link $@'; $(CXX) $(LDFLAGS) $^ $(LDLIBS) -o $@

$(BUILD)/%.o: %.cpp
	@mkdir -p $(@D)
	@echo '  compile $<'; $(CXX) $(CXXFLAGS) -c $< -o $@

# train.cu holds no CUDA code of its own; without nvcc it is C++.
$(BUILD)/train.o: train.cu
	@mkdir -p $(@D)
	@echo '  compile $<'; $(CXX) $(CXXFLAGS) -x c++ -c $< -o $@

-include $(OBJECTS:.o=.d) $(TEST_OBJECTS:.o=.d) $(BUILD)/train.d

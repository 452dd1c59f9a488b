# HyperParallel.  `make demo` and `make test` install what is missing, build and run; no configure
# step.  Overrides go to config.mk or the command line: CC, B (build folder), SAN, V=1.
-include config.mk

CC      ?= gcc
B       ?= build
PREFIX  ?= /usr/local
V       ?= 0
Q       := $(if $(filter 0,$(V)),@,)
VERSION := 0.1.0

PKGS    := jansson yaml-0.1 libpcre2-8 libutf8proc libxxhash cairo
CFLAGS  ?= -O2 -g
WARN    := -Wall -Wextra -Wpedantic -Werror -Wshadow -Wvla -Wmissing-prototypes -Wstrict-prototypes \
           -Wwrite-strings -fno-common
ALL_CFLAGS = -std=c11 -D_GNU_SOURCE $(CFLAGS) $(WARN) -fPIC -fvisibility=hidden -ffp-contract=off \
           -Iinclude -Isrc -DHP_VERSION='"$(VERSION)"' $(SAN) $(shell pkg-config --cflags $(PKGS) 2>/dev/null)
LIBS     = $(shell pkg-config --libs $(PKGS)) -ldl -lm -lpthread

# Kernels under backend/cpu/isa are compiled once per instruction set; the best is chosen at run time.
ISAS        := avx512 avx2 plain
ISA_avx512  := -DISA=avx512 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx2 -mfma -mf16c -mprefer-vector-width=512
ISA_avx2    := -DISA=avx2 -mavx2 -mfma -mf16c
ISA_plain   := -DISA=plain

ISA_SRC := $(wildcard src/backend/cpu/isa/*.c)
SRC     := $(filter-out $(ISA_SRC) src/cli/%,$(wildcard src/*/*.c src/backend/*/*.c))
CLI_SRC := $(wildcard src/cli/*.c)
OBJ     := $(SRC:%.c=$(B)/%.o) $(foreach i,$(ISAS),$(ISA_SRC:%.c=$(B)/%.$(i).o))
CLI_OBJ := $(CLI_SRC:%.c=$(B)/%.o)
TEST_SRC:= $(wildcard tests/*.c tests/unit/*.c tests/ops/*.c tests/ir/*.c tests/golden/*.c)
TEST_OBJ:= $(TEST_SRC:%.c=$(B)/%.o)

all: $(B)/hyper $(B)/libhyperparallel.so

$(B)/hyper: $(CLI_OBJ) $(B)/libhyperparallel.a
	@echo "  link    $@"
	$(Q)$(CC) $(SAN) -rdynamic -o $@ $(CLI_OBJ) $(B)/libhyperparallel.a $(LIBS)
$(B)/libhyperparallel.a: $(OBJ)
	@echo "  ar      $@"
	$(Q)rm -f $@ && ar rcs $@ $(OBJ)
$(B)/libhyperparallel.so: $(OBJ)
	@echo "  link    $@"
	$(Q)$(CC) $(SAN) -shared -Wl,-soname,libhyperparallel.so.0 -o $@ $(OBJ) $(LIBS)
$(B)/test-unit: $(TEST_OBJ) $(B)/libhyperparallel.a
	@echo "  link    $@"
	$(Q)$(CC) $(SAN) -rdynamic -o $@ $(TEST_OBJ) -Wl,--whole-archive $(B)/libhyperparallel.a -Wl,--no-whole-archive $(LIBS)

define isa_rule
$(B)/src/backend/cpu/isa/%.$(1).o: src/backend/cpu/isa/%.c
	@mkdir -p $$(@D)
	@echo "  cc      $$< ($(1))"
	$(Q)$$(CC) $$(ALL_CFLAGS) -O3 $$(ISA_$(1)) -MMD -MP -c -o $$@ $$<
endef
$(foreach i,$(ISAS),$(eval $(call isa_rule,$(i))))

$(B)/tests/%.o: tests/%.c
	@mkdir -p $(@D)
	@echo "  cc      $<"
	$(Q)$(CC) $(ALL_CFLAGS) -Itests -MMD -MP -c -o $@ $<
$(B)/%.o: %.c
	@mkdir -p $(@D)
	@echo "  cc      $<"
	$(Q)$(CC) $(ALL_CFLAGS) -MMD -MP -c -o $@ $<

-include $(shell find $(B) -name '*.d' 2>/dev/null)

clean:
	rm -rf build build-*

.PHONY: all clean

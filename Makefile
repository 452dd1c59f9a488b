# HyperParallel.  `make demo` and `make test` install what is missing, build and run; there is no
# configure step.  Overrides go to config.mk or the command line:
#   CC=clang  B=build-clang  CFLAGS="-O0 -g"  SAN=-fsanitize=address  DEVELOPER=1  PREFIX=/usr  V=1
-include config.mk

ifeq ($(origin CC),default)
CC      := gcc
endif
B       ?= build
PREFIX  ?= /usr/local
DESTDIR ?=
V       ?= 0
Q       := $(if $(filter 0,$(V)),@,)
VERSION := 0.1.0
SOVER   := 0
# All cores, unless make is told otherwise or runs inside another make.
ifeq ($(MAKELEVEL),0)
MAKEFLAGS += --no-print-directory -j$(shell nproc 2>/dev/null || echo 2)
endif

PKGS       := yaml-0.1 libpcre2-8 libutf8proc libxxhash cairo
PKG_CFLAGS := $(shell pkg-config --cflags $(PKGS) jansson 2>/dev/null)
PKG_LIBS   := $(shell pkg-config --libs $(PKGS) 2>/dev/null)
TEST_LIBS  := $(shell pkg-config --libs jansson 2>/dev/null)

CFLAGS  ?= -O2 -g
WARN    := -Wall -Wextra -Wpedantic -Wshadow -Wvla -Wmissing-prototypes -Wstrict-prototypes \
           -Wwrite-strings -fno-common
# Warnings are errors with the compilers that every change is checked with, gcc 12 and clang 14; not
# under sanitizers, whose checks make gcc see lengths and values that cannot be.
ifneq ($(DEVELOPER)$(filter 12 14.0.%,$(shell $(CC) -dumpversion 2>/dev/null)),)
WARN    += $(if $(SAN),,-Werror)
endif
ALL_CFLAGS  = -std=c11 -D_GNU_SOURCE $(CFLAGS) $(WARN) -fPIC -fvisibility=hidden -ffp-contract=off \
              -Iinclude -Isrc -DHP_VERSION=\"$(VERSION)\" $(SAN) $(PKG_CFLAGS)
LIBS       := $(PKG_LIBS) -ldl -lm -lpthread

# Kernels under backend/cpu/isa are compiled once per instruction set; the best is chosen at run time.
ISAS        := avx512 avx2 plain
ISA_avx512  := -DISA=avx512 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx2 -mfma -mf16c -mprefer-vector-width=512
ISA_avx2    := -DISA=avx2 -mavx2 -mfma -mf16c
ISA_plain   := -DISA=plain
# Some have a form for bf16 dot instructions too.
ISA_dot     := $(subst avx512 ,dot ,$(ISA_avx512)) -mavx512bf16
DOT_SRC     := $(patsubst %,src/backend/cpu/isa/%.c,attn_fwd attn_bwd gemm_dot gemm_finish gemm_pack \
                 gemm_packed_weights)
# Sanitizers take minutes on unrolled kernels at -O3.  Where their variables are (-g) says little and
# takes a third of the time to compile; -g1 has their functions and lines.  An unrolling that clang
# declines is no error.
ISA_OPT     ?= $(if $(SAN),-O1,-O3 -g1)
ISA_WARN    := -Wno-pass-failed

ISA_SRC := $(wildcard src/backend/cpu/isa/*.c)
SRC     := $(filter-out $(ISA_SRC) src/cli/%,$(wildcard src/*/*.c src/backend/*/*.c src/backend/*/*/*.c))
CLI_SRC := $(wildcard src/cli/*.c)
OBJ     := $(SRC:%.c=$(B)/%.o) $(foreach i,$(ISAS),$(ISA_SRC:%.c=$(B)/%.$(i).o)) \
           $(DOT_SRC:%.c=$(B)/%.dot.o)
CLI_OBJ := $(CLI_SRC:%.c=$(B)/%.o)
TEST_SRC:= $(wildcard tests/*.c tests/unit/*.c tests/ops/*.c tests/ir/*.c tests/golden/*.c)
TEST_OBJ:= $(TEST_SRC:%.c=$(B)/%.o)
# Most tests take longer to compile than to run.
TEST_OPT?= -O1
FUZZERS := $(patsubst tests/fuzz/%.c,%,$(wildcard tests/fuzz/fuzz_*.c))
FUZZ_HELP := $(B)/tests/fuzz/mutate.o $(B)/tests/fuzz/folder.o
A       := $(B)/libhyperparallel.a
SO      := $(B)/libhyperparallel.so

.DEFAULT_GOAL := all
# The transport over MPI is built against the MPI library that is there, and loaded at run time.
MPICC   ?= mpicc
MPI_SO  := $(if $(shell command -v $(MPICC) 2>/dev/null),$(B)/hyper_mpi.so)
all: $(B)/hyper $(SO) $(SO).$(SOVER) $(MPI_SO)

# --- build ------------------------------------------------------------------------------------
# Every object depends on this file, which changes when the compiler or its flags change.
FLAGS = $(CC) $(ALL_CFLAGS) $(TEST_OPT) $(ISA_OPT) $(ISA_avx512) $(ISA_avx2)
$(B)/flags: FORCE
	@tools/bootstrap --check
	@mkdir -p $(B)
	@echo '$(FLAGS)' | cmp -s - $@ || echo '$(FLAGS)' > $@
# And what is linked depends on this one, which changes when a source comes or goes.
SOURCES = $(SRC) $(ISA_SRC) $(ISAS) $(DOT_SRC) $(CLI_SRC) $(TEST_SRC)
$(B)/sources: FORCE
	@mkdir -p $(B)
	@echo '$(SOURCES)' | cmp -s - $@ || echo '$(SOURCES)' > $@

# Each folder of src/backend is a target, with a table of functions backend_NAME.
BACKENDS := $(patsubst src/backend/%/,%,$(wildcard src/backend/*/))
$(B)/made/backends.def: FORCE
	@mkdir -p $(@D)
	@printf 'BACKEND(%s)\n' $(BACKENDS) | cmp -s - $@ || printf 'BACKEND(%s)\n' $(BACKENDS) > $@
$(B)/src/backend/backend.o: $(B)/made/backends.def

# The plugin depends on this one, which changes when another MPI library's compiler is there.
$(B)/mpi: FORCE
	@mkdir -p $(B)
	@{ echo $(MPICC); $(MPICC) -show; } >$@.new 2>/dev/null; cmp -s $@.new $@ || cp $@.new $@; rm -f $@.new

$(B)/hyper: $(CLI_OBJ) $(A)
	@echo "  link    $@"
	$(Q)$(CC) $(SAN) -rdynamic -o $@.new $(CLI_OBJ) $(A) $(LIBS) && mv -f $@.new $@
$(A): $(OBJ) $(B)/sources
	@echo "  ar      $@"
	$(Q)rm -f $@ && ar rcs $@ $(OBJ)
# exports.map keeps names that are not public out of the symbol table.
$(SO): $(OBJ) tools/exports.map
	@echo "  link    $@"
	$(Q)$(CC) $(SAN) -shared $(if $(SAN),,-Wl,-z,defs) -Wl,-soname,libhyperparallel.so.$(SOVER) -Wl,--version-script=tools/exports.map \
	  -o $@ $(OBJ) $(LIBS)
# The name that programs linked with it look for: they run against the build too.
$(SO).$(SOVER): $(SO)
	$(Q)ln -sf $(<F) $@
# What of the command has unit tests.
TEST_CLI := $(patsubst %,$(B)/src/cli/launch_%.o,address pause sweep watchdog)
# Calls of the thread pool pass through tests/unit/test_threads.c, which counts their parts.
$(B)/test-unit: $(TEST_OBJ) $(TEST_CLI) $(A)
	@echo "  link    $@"
	$(Q)$(CC) $(SAN) -rdynamic -Wl,--wrap=pool_run -o $@ $(TEST_OBJ) $(TEST_CLI) -Wl,--whole-archive $(A) -Wl,--no-whole-archive $(LIBS) $(TEST_LIBS)
$(B)/test-json: $(B)/tests/cli/json_get.o
	$(Q)$(CC) $(SAN) -o $@ $< $(TEST_LIBS)
$(B)/crash-states: $(B)/tests/torture/crash_states.o $(A)
	$(Q)$(CC) $(SAN) -rdynamic -o $@ $^ $(LIBS)
$(B)/hyper_mpi.so: src/comm/mpi/hyper_mpi.c src/comm/transport.h $(B)/flags $(B)/mpi
	@echo "  mpicc   $@"
	$(Q)OMPI_CC=$(CC) MPICH_CC=$(CC) $(MPICC) -std=c11 $(CFLAGS) $(WARN) $(SAN) -fPIC -shared -Isrc -o $@ $<
# In tests, processes talk over sockets where there is no MPI: a transport, and an mpirun next to it.
STAND_IN := $(B)/stand-in/hyper_sockets.so $(B)/stand-in/mpirun $(B)/stand-in/ranks \
            $(B)/stand-in/flash_ranks $(B)/stand-in/host_ranks
$(B)/stand-in/hyper_sockets.so: tests/comm/socket_transport.c src/comm/transport.h $(B)/flags
	@mkdir -p $(@D)
	@echo "  cc      $@"
	$(Q)$(CC) -std=c11 -D_GNU_SOURCE $(CFLAGS) $(WARN) $(SAN) -fPIC -shared -Isrc -o $@ $<
$(B)/stand-in/mpirun: tests/comm/socket_mpirun.c $(B)/flags
	@mkdir -p $(@D)
	@echo "  cc      $@"
	$(Q)$(CC) -std=c11 -D_GNU_SOURCE $(CFLAGS) $(WARN) $(SAN) -o $@ $<
$(B)/stand-in/flash_ranks: $(B)/tests/unit/far_memory.o
$(B)/stand-in/ranks $(B)/stand-in/flash_ranks $(B)/stand-in/host_ranks: $(B)/stand-in/%: $(B)/tests/comm/%.o $(A)
	@mkdir -p $(@D)
	$(Q)$(CC) $(SAN) -rdynamic -o $@ $^ $(LIBS)
# The programs of examples/c, as a user builds them, against the shared library next to them.
EXAMPLES := $(patsubst examples/c/%.c,$(B)/examples/%,$(wildcard examples/c/*.c))
$(B)/examples/%: examples/c/%.c include/hyperparallel.h $(SO)
	@mkdir -p $(@D)
	@echo "  cc      $@"
	@ln -sf ../libhyperparallel.so $(@D)/libhyperparallel.so.$(SOVER)
	$(Q)$(CC) -std=c11 $(CFLAGS) $(WARN) $(SAN) -Iinclude -o $@ $< $(SO) -lm -Wl,-rpath,'$$ORIGIN'
examples: $(EXAMPLES)
# replay-NAME runs a fuzzer's corpus without libFuzzer; fuzz_NAME is the fuzzer (clang only).
$(B)/replay_%: $(B)/tests/fuzz/fuzz_%.o $(FUZZ_HELP) $(B)/tests/fuzz/replay.o $(A)
	$(Q)$(CC) $(SAN) -rdynamic -o $@ $^ $(LIBS)
$(B)/fuzz_%: $(B)/tests/fuzz/fuzz_%.o $(FUZZ_HELP) $(A)
	@echo "  link    $@"
	$(Q)$(CC) $(SAN) -fsanitize=fuzzer -rdynamic -o $@ $^ $(LIBS)

define isa_rule
$(B)/src/backend/cpu/isa/%.$(1).o: src/backend/cpu/isa/%.c $(B)/flags
	@mkdir -p $$(@D)
	@echo "  cc      $$< ($(1))"
	$(Q)$$(CC) $$(ALL_CFLAGS) $$(ISA_OPT) $$(ISA_WARN) $$(ISA_$(1)) -MMD -MP -c -o $$@ $$<
endef
$(foreach i,$(ISAS),$(eval $(call isa_rule,$(i))))
$(eval $(call isa_rule,dot))

# The public functions as a table, so that one without a test of its arguments does not compile.
$(B)/tests/unit/api_functions.h: include/hyperparallel.h tests/unit/api_functions.awk
	@mkdir -p $(@D)
	$(Q)awk -f tests/unit/api_functions.awk $< > $@.tmp && mv $@.tmp $@
$(B)/tests/unit/test_api_null.o: $(B)/tests/unit/api_functions.h

$(B)/tests/%.o: tests/%.c $(B)/flags
	@mkdir -p $(@D)
	@echo "  cc      $<"
	$(Q)$(CC) $(ALL_CFLAGS) $(TEST_OPT) -Itests -I$(B)/tests -MMD -MP -c -o $@ $<
$(B)/%.o: %.c $(B)/flags
	@mkdir -p $(@D)
	@echo "  cc      $<"
	$(Q)$(CC) $(ALL_CFLAGS) -I$(B)/made -MMD -MP -c -o $@ $<

-include $(shell find $(B) -name '*.d' 2>/dev/null)

# --- run --------------------------------------------------------------------------------------
TESTS_BUILT := $(B)/hyper $(STAND_IN) $(B)/test-unit $(B)/test-json $(B)/crash-states $(EXAMPLES) $(FUZZERS:fuzz_%=$(B)/replay_%)
tests-built: all $(TESTS_BUILT)
RUN_TESTS    = B=$(B) CC="$(CC)" tests/run.sh

demo: bootstrap
	@$(MAKE) all
	@HYPER=$(B)/hyper examples/demo/run.sh
test: bootstrap
	@$(MAKE) tests-built
	@$(RUN_TESTS)
test-quick: bootstrap
	@$(MAKE) tests-built
	@HYPER_QUICK=1 $(RUN_TESTS)
torture: bootstrap
	@$(MAKE) tests-built
	@$(RUN_TESTS) torture

# Sanitizer builds have folders of their own.  Slow machines: TESTS="part of a name".
TESTS   ?=
ASAN    := -fsanitize=address,undefined -fno-sanitize-recover
UBSAN   := -fsanitize=undefined,bounds,float-cast-overflow,nullability -fno-sanitize-recover=all
TSAN    := -fsanitize=thread
# What runs on several threads.
TSAN_TESTS := thread pool devices_test overlap signal overtake failed_instruction runs_allocate gemm attention einsum_plan rowops jit_run program_text test_golden test_comm test_meshes
FUZZ    := -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover
asan: bootstrap
	@$(MAKE) B=build-asan SAN="$(ASAN)" CFLAGS="-O1 -g" tests-built
	@ASAN_OPTIONS=detect_leaks=1 B=build-asan tests/run.sh unit fuzz $(TESTS)
ubsan: bootstrap-clang
	@$(MAKE) B=build-ubsan CC=clang SAN="$(UBSAN)" CFLAGS="-O1 -g" ISA_OPT="-O1 -fno-sanitize=pointer-overflow" tests-built
	@UBSAN_OPTIONS=print_stacktrace=1 B=build-ubsan tests/run.sh unit fuzz $(TESTS)
tsan: bootstrap
	@$(MAKE) B=build-tsan SAN="$(TSAN)" CFLAGS="-O1 -g" build-tsan/test-unit
	@TSAN_OPTIONS=suppressions=tools/tsan.supp B=build-tsan setarch -R tests/run.sh unit $(or $(TESTS),$(TSAN_TESTS))

# FUZZ_TIME seconds for each tests/fuzz/fuzz_*.c; FUZZERS=fuzz_x picks one.
fuzz-smoke: FUZZ_TIME ?= 20
fuzz:       FUZZ_TIME ?= 600
fuzz fuzz-smoke: bootstrap-clang
	@$(MAKE) B=build-fuzz CC=clang SAN="$(FUZZ)" CFLAGS="-O1 -g" ISA_OPT="-O1 -fno-sanitize=all" \
	  $(FUZZERS:%=build-fuzz/%)
	@tools/fuzz build-fuzz $(FUZZ_TIME) $(FUZZERS)
cover: bootstrap
	@$(MAKE) B=build-cover SAN=--coverage CFLAGS="-O1 -g" tests-built
	@find build-cover -name '*.gcda' -delete
	@B=build-cover tests/run.sh
	@tools/cover build-cover

bench: all
	@$(B)/hyper bench all
# WHAT: train, prefill, decode, gemm, op, compile, memory, load, sweep, or part of a row's name; see bench/compare.
WHAT    ?=
compare: all
	@HYPER=$(B)/hyper bench/compare/run $(WHAT)
conv: all
	@B=$(B) CC="$(CC)" bench/conv/run
sweep: all
	@HYPER=$(B)/hyper bench/compare/run sweep
overlap: all
	@HYPER=$(B)/hyper bench/overlap/run
# WHAT: emulated, real or plans.
offload: all
	@HYPER=$(B)/hyper bench/offload/run $(or $(WHAT),emulated)
kv: all
	@HYPER=$(B)/hyper bench/kv/run
# docs/benchmarks.md with the tables of what the two above have measured.
benchmarks:
	@python3 bench/compare/page.py

# What tools/lint looks at besides the sources.
$(B)/objects: $(SO) $(A) $(CLI_OBJ)
	$(Q)touch $@
# What is looked at in the libraries does not depend on optimization: 10 s from nothing, not 40.
lint:
	@$(MAKE) B=build-lint CFLAGS=-O0 ISA_OPT=-O0 SAN= build-lint/objects
	@B=build-lint CC=$(CC) tools/lint
fmt:
	@tools/format
size:
	@tools/size
docs: all
	@HYPER=$(B)/hyper tools/docs $(B)/docs
bootstrap:
	@tools/bootstrap
bootstrap-clang:
	@tools/bootstrap clang

# --- install ----------------------------------------------------------------------------------
D := $(DESTDIR)$(PREFIX)
install: all
	install -d $(D)/include $(D)/lib/pkgconfig $(D)/bin
	install -m 644 include/hyperparallel.h $(D)/include/
	install -m 644 $(A) $(D)/lib/
	install -m 755 $(SO) $(D)/lib/libhyperparallel.so.$(VERSION)
	ln -sf libhyperparallel.so.$(VERSION) $(D)/lib/libhyperparallel.so.$(SOVER)
	ln -sf libhyperparallel.so.$(SOVER) $(D)/lib/libhyperparallel.so
	sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@VERSION@|$(VERSION)|' -e 's|@LIBS@|$(LIBS)|' \
	  tools/hyperparallel.pc.in > $(D)/lib/pkgconfig/hyperparallel.pc
	install -m 755 $(B)/hyper $(D)/bin/
	$(if $(MPI_SO),install -d $(D)/lib/hyperparallel)
	$(if $(MPI_SO),install -m 755 $(MPI_SO) $(D)/lib/hyperparallel/)
	@tools/install-notes "$(PREFIX)" "$(DESTDIR)"
uninstall:
	rm -rf $(D)/lib/hyperparallel
	rm -f $(D)/include/hyperparallel.h $(D)/lib/libhyperparallel.* $(D)/lib/pkgconfig/hyperparallel.pc $(D)/bin/hyper
clean:
	rm -rf build build-*

FORCE:
.SECONDARY:
.PHONY: FORCE all asan bench benchmarks bootstrap bootstrap-clang clean compare conv cover demo docs examples \
  fmt fuzz fuzz-smoke install kv lint offload overlap size sweep test test-quick tests-built torture tsan ubsan \
  uninstall

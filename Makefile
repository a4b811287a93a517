GO       ?= go
FUZZTIME ?= 50000x
GOTEST   ?= $(GO) test

# How many modules are tested and linted, and packages fuzzed, at once. Tests of stores and brokers wait more than they compute, so that
# there are also more of them at once than processors.
JOBS     ?= 3

STATICCHECK = honnef.co/go/tools/cmd/staticcheck@v0.8.2
ERRCHECK    = github.com/kisielk/errcheck@v1.20.0 -ignoretests -exclude $(CURDIR)/errcheck.txt
GOCYCLO     = github.com/fzipp/gocyclo/cmd/gocyclo@v0.6.0 -over 25 -ignore $(NOT_PRODUCT)
GOCOGNIT    = github.com/uudashr/gocognit/cmd/gocognit@v1.2.0 -over 35 -ignore $(NOT_PRODUCT)
BENCHSTAT   = golang.org/x/perf/cmd/benchstat@v0.0.0-20260908200009-22c9c6c9d4da
VULNCHECK   = golang.org/x/vuln/cmd/govulncheck@v1.9.0

# Where functions may be as complex as they like: in tests, published suites and examples.
NOT_PRODUCT = '_test\.go$$|(^|/)(examples|adaptertest|storetest|signtest)/'

# The folders of the modules. Each is built by itself, with the versions that its own go.mod requires: in the
# workspace it would get the highest that any of them requires.
MODULES = $(shell scripts/modules)
export GOWORK = off

# Compilers and tests take more memory, and less of the processors: compiling core with the race detector, 14 % less.
export GOGC ?= 400

# A program with the race detector sleeps for a second when it ends, to see what other goroutines still do. There are hundreds of them.
export GORACE ?= atexit_sleep_ms=20

.DEFAULT_GOAL := help

.PHONY: help
help: ## say what there is to make
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# Empty where the race detector does not work: it takes cgo, and so a C compiler.
RACE = $(shell $(GO) build -race runtime/cgo 2>/dev/null && echo -race)

# What the tests of a module need is compiled before they run, one module after the other: modules that are compiled at once would compile the
# same packages. Tests run as soon as their module is compiled. The root module has most of what others share, and then come those whose tests
# take a minute or more. A module that does not compile is reported by its tests. Lint vets them all.
LONGEST = ./examples ./core/store/sqlstore ./internal/faults ./amqpidem
.PHONY: test
test: TESTFLAGS ?= -short
test: backends ## test everything with the race detector, what takes long with one pass; servers that tests may use are started, and a browser and a C compiler installed
	@race=$(RACE); [ "$$race" ] || echo "no C compiler: testing without the race detector" >&2; \
	for m in . $(LONGEST) $(filter-out . $(LONGEST),$(MODULES)); do \
		(cd $$m && $(GO) list $$race -e -export -test -deps ./... >/dev/null 2>&1) || true; echo $$m; \
	done | xargs -n 1 -P $(JOBS) sh -c 'cd "$$1" && $(GOTEST) '"$$race"' -vet=off -parallel 8 -timeout 20m $(TESTFLAGS) ./...' sh

.PHONY: test-long
test-long: TESTFLAGS =
test-long: test ## the same with all passes of what takes long: faults, chaos, clusters, clients in other languages

.PHONY: check
check: ## test the root module: what needs neither a server nor the race detector
	@IDEM_BACKENDS=none IDEM_REQUIRE_BACKENDS= $(GO) test -short -vet=off ./...

.PHONY: backends
backends: ## start the servers that tests may use, unless they are there already
	@GO=$(GO) scripts/backends

.PHONY: lint
lint: ## check formatting, widths of lines, go vet, staticcheck, errcheck, and how complex functions are (and shellcheck, if there is one)
	@unformatted=$$(gofmt -l .); if [ -n "$$unformatted" ]; then \
		echo "not formatted (gofmt -w):"; echo "$$unformatted"; exit 1; fi
	@scripts/wide
	GOWORK= $(GO) vet work
	GOWORK= $(GO) run $(ERRCHECK) work
	@# In the workspace it would see what newer versions than a module requires have deprecated.
	@printf '%s\n' $(MODULES) | xargs -n 1 -P $(JOBS) sh -c 'cd "$$1" && set -x && $(GO) run $(STATICCHECK) ./...' sh
	$(GO) run $(GOCYCLO) .
	$(GO) run $(GOCOGNIT) .
	@if command -v shellcheck >/dev/null; then shellcheck .ci/run .ci/long scripts/* examples/clients/*.sh; fi

STORE    ?= redis
DURATION ?= 1m

.PHONY: chaos
chaos: ## kill, freeze and cut off processes of a service, and the server of STORE (redis, valkey, postgres, mysql, sqlite), for DURATION; or URL=redis://… of yours
	@cd internal/faults && IDEM_REQUIRE_BACKENDS=1 IDEM_VALKEY_SERVER=$${IDEM_VALKEY_SERVER:-valkey-server} $(GO) test -count=1 -vet=off -timeout 0 \
		-run '^TestChaos$$' -args -store=$(STORE) -url='$(URL)' -duration=$(DURATION) -seed=$(or $(SEED),0)

.PHONY: vulncheck
vulncheck: ## look for calls of functions with known vulnerabilities (asks vuln.go.dev)
	@set -e; for m in $(MODULES); do (cd $$m && set -x && $(GO) run $(VULNCHECK) ./...); done

.PHONY: coverage
coverage: backends ## print how much of the product's code the tests of all modules run together
	@IDEM_REQUIRE_BACKENDS=1 NOT_PRODUCT=$(NOT_PRODUCT) JOBS=$(JOBS) scripts/coverage

.PHONY: apidiff
apidiff: ## say what has changed in the public packages since BASE (a commit; else the newest release)
	@BASE=$(BASE) scripts/apidiff

.PHONY: fuzz
fuzz: ## run each fuzz target FUZZTIME times (50000x; also a duration, 10s)
	@FUZZTIME=$(FUZZTIME) JOBS=$(JOBS) scripts/fuzz

.PHONY: bench
bench: ## measure for half an hour, write benchmarks/RESULTS.md and charts; BENCHFLAGS=-quick for a look
	@cd benchmarks && $(GO) run ./cmd/report $(BENCHFLAGS)

.PHONY: bench-compare
bench-compare: ## say with benchstat what has changed since OLD=file (measured anew, or NEW=file)
	@test -n "$(OLD)" || { echo "OLD=file of saved results (benchmarks/RESULTS.txt)"; exit 1; }
	@set -e; old=$(abspath $(OLD)); new=$(abspath $(NEW)); cd benchmarks; test -f "$$old"; \
	if [ -z "$$new" ]; then dir=$$(mktemp -d); trap 'rm -r "$$dir"' EXIT; new=$$dir/RESULTS.txt; $(GO) run ./cmd/report -out "$$dir" $(BENCHFLAGS); fi; \
	$(GO) run $(BENCHSTAT) "$$old" "$$new"

.PHONY: mutate
mutate: backends ## change the code of released packages in sixty places, one at a time, and say which changes no test catches (MUTATEFLAGS="-n 200 -seed x")
	@cd benchmarks && IDEM_REQUIRE_BACKENDS=1 $(GO) run ./cmd/mutate $(MUTATEFLAGS)

.PHONY: site
site: ## build the site of README and docs into site/dist; a dead link is an error. Needs Node.js 18 or later
	@cd site && npm ci --no-audit --no-fund --silent && npx vitepress build

.PHONY: ci
ci: ## do what the continuous integration does
	@.ci/run

.PHONY: ci-long
ci-long: ## do what takes longer than that
	@.ci/long

# GNU make 3.81 (macOS) and newer. "make" alone lists the targets.

GO ?= go

# What tests get besides their packages. Go's test cache does not know about
# servers and started programs, so an earlier pass proves nothing: -count=1.
TESTFLAGS ?= -count=1

# make test PG=16 chooses the server; see internal/pgtest.
ifdef PG
export PGMUTEX_TEST_PG := $(PG)
endif

# A workspace refuses -mod=mod. Asking go sees what `go env -w` has set, too.
export GOFLAGS := $(patsubst -mod=mod,-mod=readonly,$(shell $(GO) env GOFLAGS))

# The workspace needs Go 1.26, the library 1.25. With the older one only the
# root module can be built, as its importers do.
OLD := $(filter go1.25 go1.25.%,$(shell GOFLAGS='$(GOFLAGS)' $(GO) env GOVERSION))
ifdef OLD
export GOWORK := off
ALL := ./...
else
ALL := work
# The other modules' directories, from go.work.
NESTED = $(shell GOFLAGS='$(GOFLAGS)' $(GO) list -m -f '{{if ne .Dir "$(CURDIR)"}}{{.Dir}}/...{{end}}')
endif

.DEFAULT_GOAL := help

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

.PHONY: test
test: ## test every module; starts PostgreSQL itself
ifdef OLD
	@echo '== $(OLD): the root module only; the others need Go 1.26'
else
	@echo '== the nested modules, in the workspace'
	@test -n '$(NESTED)'
	$(GO) test $(TESTFLAGS) $(NESTED)
	@echo '== the root module, with the versions that its importers get'
endif
	GOWORK=off $(GO) test $(TESTFLAGS) ./...

.PHONY: test-race
test-race: ## the same in one workspace, under the race detector, in random order
	$(GO) test -race -shuffle=on $(TESTFLAGS) $(ALL)

.PHONY: interop
interop: ## run the real Python packages against ours; needs python3 with venv
	$(GO) test $(TESTFLAGS) -tags interop ./tests/interop/...

.PHONY: faults
faults: ## break what can be broken and judge it; PGMUTEX_FAULTS_SEED repeats a run
	$(GO) test $(TESTFLAGS) -v -tags faults -timeout 10m ./tests/faults

.PHONY: faults-quick
faults-quick: ## a seeded sample of it
	$(GO) test $(TESTFLAGS) -v -timeout 2m -run 'Storm|Checkers' ./tests/faults

.PHONY: mutants
mutants: ## seeded bugs, each of which has to turn a test red; about 8 minutes
	cd tests && GOWORK=off $(GO) run ./mutants

.PHONY: netns
netns: ## let the host of an advisory holder vanish; needs root and iproute2
	GOWORK=off $(GO) test $(TESTFLAGS) -tags netns -run '^TestHostGone$$' ./advisory

.PHONY: lint
lint: ## gofmt, vet for every system we build for, golangci-lint where it is installed
	@./scripts/lint

.PHONY: cover
cover: ## test the root module with coverage, into cover.out
	GOWORK=off $(GO) test $(TESTFLAGS) -coverpkg=./... -coverprofile=cover.out ./...
	@$(GO) tool cover -func=cover.out | tail -n 1

.PHONY: bench
bench: ## run the benchmarks; BENCH=regexp chooses
	$(GO) test -run '^$$' -bench '$(or $(BENCH),.)' -benchmem $(ALL)

.PHONY: demo
demo: ## start a throw-away PostgreSQL and say what to try on it
	@$(GO) run ./internal/demo

.PHONY: bench-quick
bench-quick: ## the figures that the docs claim, as ratios with their bounds; starts PostgreSQL itself
	cd bench && $(GO) test -tags bench -count=1 -timeout=5m -run '^TestQuick$$'

.PHONY: api
api: ## accept changes of the exported surface into internal/archtest
	GOWORK=off $(GO) test -count=1 ./internal/archtest -update

.PHONY: tools
tools: ## install what "make lint" uses where it is present
	$(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.12.2

.PHONY: tidy
tidy: ## go mod tidy in every module, each on its own
	@./scripts/tidy

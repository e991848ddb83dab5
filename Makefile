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
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile

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

.PHONY: load
load: ## 256 goroutines that take locks, give up and lose connections, for LOAD (5m), under the race detector
	PGMUTEX_LOAD_LENGTH=$(or $(LOAD),5m) $(GO) test -race $(TESTFLAGS) -v -tags load -timeout 30m -run '^TestMixedLoad$$' ./lease

.PHONY: faults-long
faults-long: ## what takes minutes, a pooler or another clock for the server; about half an hour
	$(GO) test $(TESTFLAGS) -v -tags faults,long -timeout 90m -run '^TestN[0-9]' ./tests/faults

.PHONY: model
model: ## explore the protocol and print how each mistake breaks it
	$(GO) test $(TESTFLAGS) -v ./tests/model

VERSIONS ?= 14 15 16 17 18
.PHONY: versions
versions: ## contract, failover and faults on PostgreSQL 14 to 18, or VERSIONS; an hour and a half
	@set -e; for v in $(VERSIONS); do echo "== PostgreSQL $$v"; export PGMUTEX_TEST_PG=$$v; \
	$(GO) test $(TESTFLAGS) -p 1 -timeout 15m ./internal/schema ./internal/pgdb ./lease ./advisory ./tests/sqldb ./tests/failover; \
	$(GO) test $(TESTFLAGS) -tags faults -timeout 15m ./tests/faults; done

.PHONY: versions-quick
versions-quick: ## a sample of that on the oldest and the newest
	@set -e; for v in 14 18; do echo "== PostgreSQL $$v"; export PGMUTEX_TEST_PG=$$v; \
	$(GO) test $(TESTFLAGS) -timeout 4m ./internal/schema ./tests/failover; \
	$(GO) test $(TESTFLAGS) -timeout 4m -run '$(VERSIONS_QUICK)' ./lease ./advisory; done

# What depends on the server's version: settings, statements, row locks, the
# token's timeline, catalogs.
VERSIONS_QUICK = ^Test(TakeRenewRelease|StaleRowIsTakenByTheServersClock|GuardBlocksTakeovers.*|StatementsBringTheirSettings|RolesWithStrictIsolation|EveryStatementIsPreparedByAServer|TokensAreRaisedAfterAFailover|RenewalsStayWithinTheirPage|Inspect|ForceIsAimed|SessionSettings|SettingsOfTheSession|RolesIdleTimeout|TryTx|TrySQLTx|ForeignSessions)$$

.PHONY: soak
soak: ## work for SOAK (4h) and look whether anything grows
	PGMUTEX_FAULTS_LENGTH=$(or $(SOAK),4h) $(GO) test $(TESTFLAGS) -v -tags soak -timeout 25h -run '^TestSoak$$' ./tests/faults

.PHONY: mutants
mutants: ## seeded bugs, each of which has to turn a test red; about 12 minutes
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
bench: ## all benchmarks; BENCH=regexp chooses among those in Go and leaves out the rest
	$(GO) test -run '^$$' -bench '$(or $(BENCH),.)' -benchmem $(ALL)
ifndef BENCH
	@$(MAKE) bench-quick bench-peers
endif

.PHONY: bench-peers
bench-peers: ## the engines beside Redis, etcd and others: writes bench/RESULTS.md and the plots; SHORT=1 for a minute
	cd bench && $(GO) test -tags bench -count=1 -timeout=20m -run '^TestPeers$$' $(if $(SHORT),-short,-update)

.PHONY: demo
demo: ## start a throw-away PostgreSQL and say what to try on it
	@$(GO) run ./internal/demo

.PHONY: bench-quick
bench-quick: ## the figures that the docs claim, as ratios with their bounds; starts PostgreSQL itself
	@ok=0; (cd bench && $(GO) test -tags bench -count=1 -timeout=5m -run '^TestQuick$$') || ok=1; \
	(cd cmd/pgmutex && $(GO) test -tags bench -count=1 -timeout=5m -run '^TestOverhead$$' .) || ok=1; exit $$ok

.PHONY: man
man: ## write manual pages and completions into bin
	cd cmd/pgmutex && $(GO) run ./internal/extras '$(CURDIR)/bin'

.PHONY: api
api: ## accept changes of the exported surface into internal/archtest
	GOWORK=off $(GO) test -count=1 ./internal/archtest -update

.PHONY: tools
tools: ## install what "make lint" uses where it is present
	$(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.12.2

.PHONY: tidy
tidy: ## go mod tidy in every module, each on its own
	@./scripts/tidy

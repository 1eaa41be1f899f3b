# druid: the two commands that a newcomer needs are `make quickstart` and `make test`. `make help` lists the others.
#
# All builds share one setting of cgo and -trimpath, the rig's own: mixing settings would double the Go build cache, which
# is gigabytes. Only the race detector needs cgo.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

export CGO_ENABLED := 0
export GOFLAGS := $(filter-out -trimpath,$(GOFLAGS)) -trimpath
export GOWORK := off

GOLANGCI_LINT := go tool -modfile=tools/go.mod golangci-lint

# What needs a whole Kubernetes runs in `e2e`; all other packages are tested together.
E2E := ./test/e2e
# The model is plain arithmetic on one goroutine per walk: the race detector finds nothing in it and makes it ten times slower.
MODEL := ./test/model
# The longest come first, lest they run when all others have ended.
LONGEST := ./druid ./agent/leader ./agent/bootstrap ./test/crash
FAST = $(LONGEST) $$(go list ./... | grep -v -e '/test/e2e$$' -e /test/model)
# Most tests wait for servers most of the time; more at once and they wait for a core.
AT_ONCE := -p $(shell echo $$(($$(nproc) + 1)))

# $(call step,NAME,COMMANDS) runs one step of a longer target and tells how long it took.
define step
	@echo; echo "=== $(1)"; begun=$$SECONDS; code=0; ( $(2) ) || code=$$?; \
	took=$$((SECONDS - begun)); \
	if [ $$code -ne 0 ]; then echo "=== $(1): failed after $${took}s"; exit $$code; fi; \
	echo "=== $(1): $${took}s"
endef

# $(call unchanged,TARGET,MESSAGE) runs TARGET and fails if it changed any file that is not ignored.
define unchanged
	@print() { git ls-files -z --cached --others --exclude-standard --deduplicate | xargs -0 sha256sum 2>/dev/null || true; }; \
	before=$$(print); $(MAKE) $(1); after=$$(print); \
	if [ "$$before" != "$$after" ]; then \
		diff <(echo "$$before") <(echo "$$after") | sed -n 's/^> [0-9a-f]*  /changed: /p'; echo "$(2)"; exit 1; \
	fi
endef

##@ Try it

.PHONY: quickstart
quickstart: setup ## Bring up a Kubernetes on this machine, install druid, form a cluster, destroy a disk and watch it heal.
	@go run ./test/quickstart

.PHONY: quickstart-down
quickstart-down: ## End what quickstart left running.
	@go run ./test/quickstart --down

##@ Develop

.PHONY: generate
generate: ## Write all generated files: deep copies, CRD, install manifests.
	@go generate ./...

.PHONY: fmt
fmt: ## Format all Go files (gofmt, imports in three groups).
	@$(GOLANGCI_LINT) fmt

.PHONY: lint-fix
lint-fix: ## Lint, and mend what can be mended by a machine.
	@$(GOLANGCI_LINT) run --fix

.PHONY: golden
golden: ## Write golden files and docs/decisions.md anew from the code. Read the diff.
	@go test $$(git grep -lE '"update"|/test/golden"' -- '*_test.go' | xargs -n1 dirname | sort -u | sed 's|^|./|') -update

##@ Check

.PHONY: test
test: ## Run everything: formatting, lint, generated files, tests with the race detector, e2e, quickstart.
	$(call step,set up,$(MAKE) setup)
	$(call step,formatting,$(MAKE) verify-fmt)
	$(call step,generated files,$(MAKE) verify-generate)
	$(call step,programs of the rig,go run ./test/rig build)
	$(call step,lint,$(MAKE) lint)
	$(call step,unit and component tests,$(MAKE) test-race)
	$(call step,model,$(MAKE) model)
	$(call step,end to end,$(MAKE) e2e)
	$(call step,quickstart,$(MAKE) verify-quickstart)

.PHONY: test-fast
test-fast: ## Run unit and component tests (etcd, kube-apiserver; no rig), without the race detector.
	@go test $(AT_ONCE) $(FAST)

.PHONY: test-race
test-race: ## Run unit and component tests with the race detector.
	@CGO_ENABLED=1 GOFLAGS="$(filter-out -trimpath,$(GOFLAGS))" go test -race -timeout 40m $(AT_ONCE) $(FAST)

.PHONY: model
model: ## Walk and search the model of the protocol by the real decisions. More: go test ./test/model -args -model.steps 30000000
	@go test $(MODEL) -timeout 40m

# The stories that need a rig for themselves wait most of the time, so they run on one beside that of all others.
.PHONY: e2e
e2e: ## Run the end-to-end tests on a rig of their own. One story: make e2e RUN=TestName. With four cores or more, on two rigs at once: make e2e RIGS=2
ifneq ($(RIGS),2)
	@go test $(E2E) -count=1 -v -timeout 60m $(if $(value RUN),-run '$(value RUN)')
else
	@d=$$(mktemp -d); alone=; trap 'kill $$alone 2>/dev/null || true; rm -rf "$$d"' EXIT; \
	go test -c -o "$$d/e2e" $(E2E); cd $(E2E); stories=("$$d/e2e" -test.v -test.timeout 40m -stories); \
	"$${stories[@]}" alone >"$$d/alone" 2>&1 & alone=$$!; code=0; "$${stories[@]}" beside || code=$$?; \
	wait $$alone || code=$$?; echo "=== stories that run alone"; cat "$$d/alone"; exit $$code
endif

# Backups are measured without a rig, and end in one line: name key=value …
BACKUP_BENCHES := full delta restore idle

.PHONY: bench
bench: ## Measure on the rig and print the tables of docs/benchmarks.md. One part: make bench BENCH=Fleet; backups: BENCH=full|delta|restore|idle
ifneq ($(filter $(BACKUP_BENCHES),$(BENCH)),)
	@d=$$(mktemp -d); trap 'rm -rf "$$d"' EXIT; go test -c -o "$$d/bench" ./test/bench/backup; \
	cd test/bench/backup; "$$d/bench" -test.run '^$$' -test.bench '(?i)^Benchmark$(BENCH)$$' -test.benchtime 1x -test.timeout 120m
else
	@go test ./test/bench -run '^$$' -bench '$(or $(BENCH),.)' -benchtime 3x -timeout 120m
endif

.PHONY: lint
lint: ## Lint; the layers of docs/architecture.md are among the rules.
	@$(GOLANGCI_LINT) run

.PHONY: verify-fmt
verify-fmt: ## Fail if a file is not formatted.
	@$(GOLANGCI_LINT) fmt --diff || { echo "run: make fmt"; exit 1; }

.PHONY: verify-generate
verify-generate: ## Fail if a generated file is out of date.
	$(call unchanged,generate,the files above were out of date; they are written anew: commit them)

.PHONY: verify-quickstart
verify-quickstart: ## Fail if the quickstart does not tell its story to the end; on a rig of its own.
	@go run ./test/quickstart --once

##@ Set up

# Debian packages: the rig's (test/rig says what is missing where there is no apt-get), and the race detector's compiler.
RIG_PACKAGES := containerd runc containernetworking-plugins iproute2 nftables iptables conntrack util-linux mount
RACE_PACKAGES := gcc libc6-dev

.PHONY: setup
setup: ## Install the Debian packages that the rig and the race detector need. Go modules are fetched when they are used.
	@missing=; for p in $(RIG_PACKAGES) $(RACE_PACKAGES); do \
		dpkg-query -W -f '$${Status}' $$p 2>/dev/null | grep -q 'ok installed' || missing+=" $$p"; done; \
	if [ -n "$$missing" ] && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		echo "installing$$missing"; export DEBIAN_FRONTEND=noninteractive; \
		apt-get -qq -o DPkg::Lock::Timeout=300 update; \
		apt-get -qq -o DPkg::Lock::Timeout=300 install -y --no-install-recommends $$missing >/dev/null; \
	fi

.PHONY: help
help: ## Show this help.
	@awk 'BEGIN {FS = ":.*## "} \
		/^##@ / {printf "\n%s\n", substr($$0, 5)} \
		/^[a-z0-9-]+:.*## / {sub(/:.*/, "", $$1); printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

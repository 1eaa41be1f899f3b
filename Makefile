# druid: the two commands that a newcomer needs are `make quickstart` and `make test`. `make help` lists the others.
#
# All builds share one setting of cgo and -trimpath, the rig's own: mixing settings would double the Go build cache, which
# is gigabytes. Only the race detector and vale need cgo.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

export CGO_ENABLED := 0
export GOFLAGS := $(filter-out -trimpath,$(GOFLAGS)) -trimpath
export GOWORK := off

GOLANGCI_LINT := go tool -modfile=tools/go.mod golangci-lint

GOTESTSUM := go tool -modfile=tools/go.mod gotestsum

# vale links parsers for source code, which are C. Pages do not need them, so they are compiled without optimization: in one minute, not in many.
VALE := CGO_ENABLED=1 CGO_CFLAGS=-O0 go tool -modfile=tools/go.mod vale

# Pages that vale reads. .vale.ini has fewer rules for those that tests render.
PAGES = $(wildcard README.md CONTRIBUTING.md SECURITY.md docs/README.md docs/tutorials docs/how-to docs/reference docs/explanation)

# What needs a whole Kubernetes runs in `e2e`; all other packages are tested together.
E2E := ./test/e2e
# The model is plain arithmetic on one goroutine per walk: the race detector finds nothing in it and makes it ten times slower.
MODEL := ./test/model
# The longest come first, so that they do not run after all others have ended.
LONGEST := ./druid ./test/crash ./agent/duties ./agent/start ./backup/restore
PACKAGES = $(LONGEST) $$(go list ./... | grep -v -e '/test/e2e$$' -e /test/model)
# Packages whose tests start no server and no other program.
SMALL = $$(go list -f '{{.ImportPath}} {{join .Imports " "}} {{join .TestImports " "}} {{join .XTestImports " "}}' ./... | \
	grep -v -E '/test/(alone|backups|bench|bucket|crash|e2e|env|member|model|quickstart|rig|ui)\b' | cut -d' ' -f1)
# Go's test cache takes results of any clone with the same content for those of this one.
ALIKE := go run ./test/sources/alike
# The longest packages keep a core busy each with their servers and the race detector; more at once and tests exceed their deadlines.
AT_ONCE := -p $(shell nproc)
# What has no deadlines of its own leaves the CPUs to what has.
IDLE := nice -n 19 $(if $(shell command -v chrt),chrt --idle 0)

# A run of `make test` has a directory here, in which its steps leave what they saw. The newest twenty stay.
RIG_CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/druid-rig
RUNS := $(RIG_CACHE)/tests
# Seconds for a whole run, from its begin. Where the rig's programs were not built yet, they are built first.
BUDGET ?= $(if $(wildcard $(RIG_CACHE)/bin/kubernetes-*),1680,3000)
# Seconds that the steps after the stories need.
RESERVE := 120

# $(call step,NAME,COMMANDS) runs one step of a longer target and reports how long it took.
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
lint-fix: ## Lint, and fix what a tool can fix.
	@$(GOLANGCI_LINT) run --fix

.PHONY: golden
golden: ## Write golden files and docs/reference/decisions.md again from the code. Read the diff.
	@go test $$(git grep -lE '"update"|/test/golden"' -- '*_test.go' | xargs -n1 dirname | sort -u | sed 's|^|./|') -update

.PHONY: screenshots
screenshots: ## Write the screenshots of the web page in docs/images again, in a headless Chromium. Look at each.
	@go test ./test/ui -run '^TestScreenshotsShowThePageAsItIs$$' -count=1 -screenshots

BOARDS := $(CURDIR)/dist/.dashboards
# Only this target needs the components of Grafana. They are in a folder that Go does not look into: one of the packages has Go code.
.PHONY: dashboards
dashboards: ## Write the images of the Grafana dashboard in docs/images again, with Node.js and a headless Chromium. It needs the network. Look at each.
	@mkdir -p $(BOARDS); cp test/dashboards/package*.json test/dashboards/index.html $(BOARDS)
	@cd $(BOARDS); cmp -s package-lock.json node_modules/.druid-lock || { npm ci --ignore-scripts --loglevel=error; cp package-lock.json node_modules/.druid-lock; }
	@cd tools/prometheus; go test -count=1 -run '^TestDashboardShowsTheStory$$' . -frames $(BOARDS)/frames.json
	@NODE_PATH=$(BOARDS)/node_modules $(BOARDS)/node_modules/.bin/esbuild test/dashboards/page.jsx --outdir=$(BOARDS) --bundle --minify --jsx=automatic \
		'--define:process.env.NODE_ENV="production"' --loader:.svg=dataurl --loader:.png=dataurl --loader:.ttf=dataurl --loader:.woff2=dataurl --log-level=warning
	@go test ./test/ui -run '^TestDashboardImagesAreOnTheirPage$$' -count=1 -dashboards $(BOARDS)

##@ Check

.PHONY: check
check: ## Run what needs no server: formatting, generated files, lint, small packages. The inner loop.
	$(call step,formatting,$(MAKE) verify-fmt)
	$(call step,generated files,$(MAKE) verify-generate)
	$(call step,lint,$(MAKE) lint)
	$(call step,small packages,go test $(AT_ONCE) -vet=off $(SMALL))

.PHONY: test
test: ## Run what CI runs: formatting, generated files, lint, packages, model, docs site, the stories that its time allows, quickstart.
	@mkdir -p $(RUNS); ls -1t $(RUNS) | tail -n +20 | sed 's|^|$(RUNS)/|' | xargs -r rm -r; \
	export DRUID_TEST_RUN=$$(mktemp -d $(RUNS)/$$(date -u +%Y%m%dT%H%M%S)-XXXX) DRUID_TEST_BEGAN=$$(date +%s); \
	export DRUID_TEST_RESERVE=$(RESERVE) BUDGET=$(BUDGET); \
	$(MAKE) prepared; failed=(); \
	$(MAKE) step-packages || failed+=(packages); \
	$(IDLE) $(MAKE) step-lint >"$$DRUID_TEST_RUN/lint.log" 2>&1 & lint=$$!; \
	$(IDLE) $(MAKE) step-model >"$$DRUID_TEST_RUN/model.log" 2>&1 & model=$$!; \
	$(IDLE) $(MAKE) step-docs >"$$DRUID_TEST_RUN/docs.log" 2>&1 & docs=$$!; \
	trap 'kill $$lint $$model $$docs 2>/dev/null || true' EXIT; \
	$(MAKE) step-e2e || failed+=(stories); \
	wait $$lint || failed+=(lint); cat "$$DRUID_TEST_RUN/lint.log"; \
	wait $$model || failed+=(model); cat "$$DRUID_TEST_RUN/model.log"; \
	wait $$docs || failed+=(docs); cat "$$DRUID_TEST_RUN/docs.log"; \
	$(MAKE) step-quickstart || failed+=(quickstart); \
	echo; IFS=,; go run ./test/ledger/judge -failed "$${failed[*]}"

.PHONY: test-all
test-all: ## Run everything, nothing from a cache: all stories, with the agents' intervals of production, and the model twice as far.
	@$(MAKE) prepared
	$(call step,lint,$(MAKE) lint)
	$(call step,docs,$(MAKE) docs)
	$(call step,same bytes,$(MAKE) verify-build)
	$(call step,packages,$(MAKE) packages COUNT=1)
	$(call step,model,$(MAKE) model STEPS=2000000)
	$(call step,stories,$(MAKE) e2e STORIES=all AGENTS=production)
	$(call step,chaos,$(MAKE) chaos ROUNDS=3 FOR=5m)
	$(call step,quickstart,$(MAKE) verify-quickstart)

HOURS := 1
LOAD := 0
SEED := $(shell date +%s)

.PHONY: soak
soak: setup ## Perform random stories for HOURS=1 with fresh seeds from SEED=, next to LOAD=0 processes that use a CPU each.
	@go test $(E2E) -count=1 -v -timeout 0 -args -stories soak -soak.hours $(HOURS) -soak.load $(LOAD) -soak.seed $(SEED)

ROUNDS := 1
FOR := 2m
KINDS :=

.PHONY: chaos
chaos: setup ## Let faults overlap in ROUNDS=1 clusters for FOR=2m each, and validate what clients did and saw. A round lasts some minutes longer. Again: SEED=. Only some faults: KINDS='log|node'
	@go test $(E2E) -count=1 -v -timeout 0 -run '^TestFaultsThatOverlapBreakNoPromise$$' -args -chaos.rounds $(ROUNDS) -chaos.for $(FOR) -chaos.seed $(SEED) -chaos.kinds '$(KINDS)'

.PHONY: prepared step-packages step-lint step-model step-docs step-e2e step-quickstart
prepared:
	$(call step,set up,$(MAKE) setup)
	$(call step,formatting,$(MAKE) verify-fmt)
	$(call step,generated files,$(MAKE) verify-generate)
	$(call step,programs of the rig,go run ./test/rig build && go run ./test/rig build helm-3 helm-4 krew validate-krew-manifest)
step-packages:
	$(call step,packages,$(MAKE) packages)
step-lint:
	$(call step,lint,$(MAKE) lint)
step-model:
	$(call step,model,$(MAKE) model)
# CI builds the site. Elsewhere a machine without Node.js leaves it out, and says so.
step-docs:
	$(call step,docs,if [ -n "$(CI)" ] || command -v node >/dev/null; then $(MAKE) docs; else echo "not built: there is no node"; fi)
step-e2e:
	$(call step,stories,$(MAKE) e2e)
step-quickstart:
	$(call step,quickstart,$(MAKE) verify-quickstart)

# Tests have deadlines, compilers take all CPUs: go vet compiles everything first, and links nothing.
# A test that failed is repeated once, alone, when all others have ended; not after a data race, nor when more than three failed.
.PHONY: packages
packages: ## Run all tests but the stories and the model, with the race detector.
	@d=$${DRUID_TEST_RUN:-$$(mktemp -d)}; [ -n "$${DRUID_TEST_RUN:-}" ] || trap 'rm -r "$$d"' EXIT; code=0; \
	$(ALIKE) env CGO_ENABLED=1 go vet -race -unusedresult $(PACKAGES) || code=1; \
	$(ALIKE) env CGO_ENABLED=1 $(GOTESTSUM) --format standard-quiet --jsonfile "$$d/packages.json" --rerun-fails-report "$$d/packages-rerun.txt" \
		--rerun-fails=1 --rerun-fails-max-failures=3 --rerun-fails-run-root-test --rerun-fails-abort-on-data-race \
		--packages "$$(echo $(PACKAGES))" -- -race -vet=off -timeout 40m $(AT_ONCE) $(if $(COUNT),-count=$(COUNT)) || code=1; \
	echo "Go's test cache knew the results of $$(grep -c '(cached)' "$$d/packages.json" || true) packages"; exit $$code

.PHONY: model
model: ## Walk and search the model of the protocol by the real decisions. Further: make model STEPS=30000000
	@$(ALIKE) go test $(MODEL) -vet=off -timeout 40m $(if $(STEPS),-args -model.steps $(STEPS))

E2E_ARGS = $(if $(STORIES),-stories $(STORIES)) $(if $(AGENTS),-agents $(AGENTS))
# The stories that need a rig for themselves wait most of the time, so they run on one next to that of all others.
.PHONY: e2e
e2e: ## Run the end-to-end tests on a rig of their own. One story: make e2e RUN=TestName; all: STORIES=all. With the agents' intervals of production: AGENTS=production. With four cores or more, on two rigs at once: make e2e RIGS=2
ifneq ($(RIGS),2)
	@go test $(E2E) -count=1 -v -timeout 75m $(if $(value RUN),-run '$(value RUN)') $(if $(STORIES)$(AGENTS),-args $(E2E_ARGS))
else
	@d=$$(mktemp -d); alone=; trap 'kill $$alone 2>/dev/null || true; rm -rf "$$d"' EXIT; \
	go test -c -o "$$d/e2e" $(E2E); cd $(E2E); stories=("$$d/e2e" -test.v -test.timeout 40m $(if $(AGENTS),-agents $(AGENTS)) -stories); \
	"$${stories[@]}" alone >"$$d/alone" 2>&1 & alone=$$!; code=0; "$${stories[@]}" alongside || code=$$?; \
	wait $$alone || code=$$?; echo "=== stories that run alone"; cat "$$d/alone"; exit $$code
endif

# Backups are measured without a rig, and end in one line: name key=value …
BACKUP_BENCHES := full delta restore idle

.PHONY: bench
bench: ## Measure on the rig and print the tables of docs/explanation/benchmarks.md. One part: make bench BENCH=Fleet; backups: BENCH=full|delta|restore|idle
ifneq ($(filter $(BACKUP_BENCHES),$(BENCH)),)
	@d=$$(mktemp -d); trap 'rm -rf "$$d"' EXIT; go test -c -o "$$d/bench" ./test/bench/backup; \
	cd test/bench/backup; "$$d/bench" -test.run '^$$' -test.bench '(?i)^Benchmark$(BENCH)$$' -test.benchtime 1x -test.timeout 120m
else
	@go test ./test/bench -run '^$$' -bench '$(or $(BENCH),.)' -benchtime 3x -timeout 120m
endif

# The programs that a release has for macOS and Windows too.
FOR_USERS := ./cmd/kubectl-druid ./cmd/druid-backup

.PHONY: lint
lint: vale ## Lint code and pages; the layers of docs/explanation/packages.md are among the rules. What users run must compile on macOS and Windows too.
	@$(GOLANGCI_LINT) run
	@cd tools/release && go tool -modfile=../go.mod golangci-lint run
	@GOOS=darwin GOARCH=arm64 go build ./agent/cli || { echo "agent backup runs on macOS too: put what only Linux has into a file *_linux.go"; exit 1; }
	@GOOS=windows go build ./agent/cli/backup || { echo "druid-backup runs on Windows too: put what only Unix has into a file *_unix.go"; exit 1; }
# go vet compiles as go build does, and links nothing.
	@for platform in darwin/arm64 windows/amd64; do \
		GOOS=$${platform%/*} GOARCH=$${platform#*/} go vet $(FOR_USERS) || { echo "$(FOR_USERS) must compile for $$platform too: put what it does not have into a file of the system that has it"; exit 1; }; \
	done

.PHONY: vale
vale: ## Check the language of the pages, and the examples of the rules in docs/.vale/styles.
	@$(VALE) test docs/.vale/styles
	@$(VALE) $(PAGES)

SITE := docs/.vitepress
BASE := /

# The packages are those of the lock file. After the first build they are in $(SITE)/node_modules, and no build needs the network: it runs in
# a network namespace that has none, where the machine permits that. CI insists on it.
.PHONY: docs
docs: ## Build the site of the documentation into dist/docs, with Node.js 18 or later. A dead link fails, and so does a page that docs/README.md does not list, or that the search does not find. Not at the root of its host: make docs BASE=/druid/
	@for p in node npm; do command -v $$p >/dev/null || { echo "there is no $$p, and the site needs it: run make setup as root, or install Node.js 18 or later"; exit 1; }; done; \
	cd $(SITE); installed=node_modules/.package-lock.json; \
	if [ ! -e $$installed ] || [ package-lock.json -nt $$installed ]; then npm ci --prefer-offline --loglevel=error; touch $$installed; fi; \
	offline=; for apart in 'unshare --net' 'unshare --map-root-user --net'; do if $$apart true 2>/dev/null; then offline=$$apart; break; fi; done; \
	if [ -z "$$offline" ]; then \
		echo "the build has the network, because this machine permits no network namespace"; [ -z "$(CI)" ] || exit 1; \
	fi; \
	DOCS_BASE='$(BASE)' $$offline node_modules/.bin/vitepress build ..

.PHONY: verify-fmt
verify-fmt: ## Fail if a file is not formatted.
	@$(GOLANGCI_LINT) fmt --diff || { echo "run: make fmt"; exit 1; }

.PHONY: verify-generate
verify-generate: ## Fail if a generated file is out of date.
	$(call unchanged,generate,the files above were out of date; they are written again: commit them)

# Two directories, two caches: only what the sources and Go's version decide can be the same.
.PHONY: verify-build
verify-build: ## Build the programs twice, in two directories and with empty caches, and fail if a byte differs.
	@d=$$(mktemp -d); trap 'rm -rf "$$d"' EXIT; \
	for n in one another-directory; do \
		mkdir -p "$$d/$$n/src"; git ls-files -z --cached --others --exclude-standard | xargs -0 tar -cf - | tar -xf - -C "$$d/$$n/src"; \
		(cd "$$d/$$n/src" && GOCACHE="$$d/$$n/cache" go build -buildvcs=false -ldflags='-s -w' -o "$$d/$$n/bin/" ./cmd/...); \
	done; \
	for p in "$$d"/one/bin/*; do cmp "$$p" "$$d/another-directory/bin/$${p##*/}"; sha256sum "$$p" | sed "s|$$d/one/bin/||"; done

# It asks vuln.go.dev, so it is not among the checks that run without the Internet.
GOVULNCHECK := golang.org/x/vuln/cmd/govulncheck@v1.1.4
.PHONY: vulnerabilities
vulnerabilities: ## Report known vulnerabilities in what the programs call. It needs vuln.go.dev, and no other target runs it.
	@go run $(GOVULNCHECK) ./cmd/...

.PHONY: verify-quickstart
verify-quickstart: ## Fail if the quickstart does not run to its end; on a rig of its own.
	@go run ./test/quickstart --once

##@ Release

RELEASE := go -C tools/release run .

.PHONY: release
release: ## Build all files of a release from the last commit into dist/VERSION: make release VERSION=v0.1.0. Signed by a secret key of minisign: KEY=druid.key. For some platforms: PLATFORMS=linux/amd64
	@$(RELEASE) make --repo ../.. --version '$(VERSION)' $(if $(KEY),--key '$(abspath $(KEY))') $(if $(PLATFORMS),--platforms '$(PLATFORMS)')

.PHONY: release-key
release-key: ## Print the public key of the releases as PEM, for cosign and openssl, from the secret key of minisign: make release-key KEY=druid.key
	@$(RELEASE) key --key '$(abspath $(KEY))'

.PHONY: push-release
push-release: ## Push the image of a release in dist/VERSION, its signature and its SBOM: make push-release VERSION=v0.1.0. To another repository: TO=registry.example.com/druid, and there for some platforms: PLATFORMS=linux/amd64
	@$(RELEASE) push --repo ../.. --version '$(VERSION)' $(if $(TO),--to '$(TO)') $(if $(PLATFORMS),--platforms '$(PLATFORMS)')

##@ Set up

# Debian packages: the rig's (test/rig says what is missing where there is no apt-get), the compilers of the race detector and vale, a browser, Node.js, and Python.
RIG_PACKAGES := containerd runc containernetworking-plugins iproute2 nftables iptables conntrack util-linux mount
CGO_PACKAGES := gcc g++ libc6-dev
# The browser of test/ui.
UI_PACKAGES := chromium-headless-shell
# Programs of the site, and Python for test/connect, and their packages. A machine can have them from elsewhere.
SITE_PACKAGES := node=nodejs npm=npm python3=python3

.PHONY: setup
setup: ## Install the Debian packages that the rig, the race detector, vale, the tests of the web page and of clients and the site need. Go modules are fetched when they are used.
	@missing=; for p in $(RIG_PACKAGES) $(CGO_PACKAGES) $(UI_PACKAGES); do \
		dpkg-query -W -f '$${Status}' $$p 2>/dev/null | grep -q 'ok installed' || missing+=" $$p"; done; \
	for p in $(SITE_PACKAGES); do command -v "$${p%=*}" >/dev/null || missing+=" $${p#*=}"; done; \
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

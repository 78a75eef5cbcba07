# Everything is built below build/. `make help` lists the targets.
SHELL := /bin/bash
.ONESHELL:
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

GO      ?= go
# The file holds the version of the next release, v2.31.10001+codermesh: raise it after each (docs/decisions, "Version numbers").
VERSION ?= $(file < VERSION)
# Compile results do not depend on the clone's folder: a new clone finds those of another in Go's cache.
export GOFLAGS := $(filter-out -trimpath,$(GOFLAGS)) -trimpath
BUILDINFO := github.com/codermesh/codermesh/v2/internal/buildinfo
# RELEASED is set in a release only: other builds append their commit to the version. Go notes it in clones, but not in worktrees.
HEAD      = $(shell git describe --always --exclude='*' --abbrev=40 --dirty=.dirty 2>/dev/null)
LDFLAGS   = -s -w -X $(BUILDINFO).version=$(VERSION)$(if $(RELEASED), -X $(BUILDINFO).released=yes, -X $(BUILDINFO).head=$(HEAD))
TOOL    := $(GO) tool -modfile=tools/go.mod
# Without cgo, as the programs are built: tests and linters take what `make build` compiled.
LINT    := CGO_ENABLED=0 $(GO) tool -modfile=tools/lint/go.mod golangci-lint
VULN     = CGO_ENABLED=0 $(GO) run -C tools/vuln . -C ../.. -tags '$(FULL_TAGS)'
# Leaves out a line for each module that Go downloads.
CALM    := 2> >(grep -v '^go: downloading ' >&2)
# Runs tests, prints what fails, and logs all events for the report at the end.
TESTSUM := $(GO) tool -modfile=tools/suite/go.mod gotestsum --format standard-quiet --format-hide-empty-pkg --hide-summary skipped
# Where the logs of tests are, and of the processes of tests that failed.
RESULTS := $(CURDIR)/build/test
export TEST_LOGS := $(RESULTS)/logs
# The Go that builds releases. An older one may have known vulnerabilities in its standard library.
RELEASE_GO := go1.26.11
HOST    := $(shell $(GO) env GOOS)-$(shell $(GO) env GOARCH)
# Which slim binaries the server carries for workspaces and laptops: a list, or all.
SLIM    ?= $(HOST)
ALL     := linux-amd64 linux-arm64 linux-armv7 darwin-amd64 darwin-arm64 windows-amd64 windows-arm64
# For which platforms a release has the full program.
FULL    := linux-amd64 linux-arm64
# What signs a release: RELEASE_KEY, the file of a private key (while keys change, two), and RELEASE_PASSWORD_FILE, if the key is encrypted.
# RELEASE_SIGNATURE is the published signature of the programs of a release to build again (docs/decisions, "Signed releases").
SIGN = $(foreach key,$(RELEASE_KEY),-key $(abspath $(key))) $(if $(RELEASE_PASSWORD_FILE),-password-file $(abspath $(RELEASE_PASSWORD_FILE))) $(if $(RELEASE_SIGNATURE),-signature $(abspath $(RELEASE_SIGNATURE)))
# Packages and archives: their version, which allows no "+", and the tools that make them.
NUMBER  := $(patsubst v%,%,$(firstword $(subst +, ,$(VERSION))))
NFPM    := $(GO) tool -modfile=tools/release/go.mod nfpm

# Tools that a machine lacks are put here (scripts/test-prerequisites).
export PATH := $(PATH):$(CURDIR)/build/tools

# What of tailscale.com the binaries leave out: they use magicsock and the relay only. The list is what
#   go run tailscale.com/cmd/featuretags --min --add=health,listenrawdisco,netlog
# prints for the version in go.mod, and ts_omit_logtail: health picks the home relay, netlog counts what magicsock sends.
SLIM_TAGS := $(file < scripts/slim.tags)
# grpcnotrace: the tracer's pages would link html/template.
FULL_TAGS := $(SLIM_TAGS),grpcnotrace

.PHONY: static cross docs help run build slim site packages image-context image test-image test-docker-starter test-packages test-charts test-rules test-installs release release-key release-check update-vulnerabilities test test-site screenshots recordings prerequisites test-browser go-race go-plain go-e2e go-windows test-only check test-under-load test-windows test-darwin fuzz mutate test-race e2e lint fmt gen verify bench bench-docker bench-scale bench-wan bench-devices bench-connect bench-fair soak clean
help: ## list all targets
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## /\1\t/' | expand -t 14

# The licenses of what the programs contain, for the platforms that are built.
NOTICES := coderd/notices/dist/NOTICES.txt.gz

$(NOTICES): go.mod site/package-lock.json tools/notices/main.go | site
	@echo "collect the licenses of what the programs contain"
	$(GO) run -C tools ./notices -root .. -platforms '$(if $(filter all,$(SLIM)),$(ALL),$(SLIM))' -tags '$(FULL_TAGS)' -o ../$@ ./cmd/coder ./cmd/coder-slim $(CALM)

# What archives, packages and images contain.
build/NOTICES.txt: $(NOTICES)
	@mkdir -p build
	gzip -dc $(NOTICES) > $@

run: build ## build and start the server on http://127.0.0.1:3000 with its own PostgreSQL
	@build/coder server --fetch-postgres --install-terraform

# launch OS-ARCH: put the program that starts sandboxes where the server of that system finds it to contain it.
PACKED  := provisionerd/terraform/launcher/packed/dist
define launch
launch() {
	rm -f $(PACKED)/*.gz
	[[ $$1 == linux-* ]] || return 0
	CGO_ENABLED=0 GOOS=linux GOARCH=$${1#*-} $(GO) build -ldflags '-s -w' -o build/coder-sandbox ./cmd/coder-sandbox $(CALM)
	gzip -9nc build/coder-sandbox > $(PACKED)/coder-sandbox-$$1.gz
}
endef

build: slim site build/NOTICES.txt ## build the program (build/coder) and the slim binary (build/coder-slim)
	@$(launch)
	echo "compile the server (build/coder)"
	launch $(HOST)
	CGO_ENABLED=0 $(GO) build -tags '$(FULL_TAGS)' -ldflags '$(LDFLAGS)' -o build/coder ./cmd/coder $(CALM)

slim: ## build the slim binaries (SLIM="linux-amd64 linux-arm64 …") and embed them in the server
	@mkdir -p build coderd/slim/dist
	rm -f coderd/slim/dist/SHA256SUMS.release* # of a release
	for target in $(if $(filter all,$(SLIM)),$(ALL),$(SLIM)); do
		echo "compile the command line for $$target"
		os=$${target%%-*} arch=$${target#*-} out=build/slim/coder-$$target
		[ $$os = windows ] && out=$$out.exe
		CGO_ENABLED=0 GOOS=$$os GOARCH=$${arch/armv7/arm} GOARM=7 $(GO) build -tags '$(SLIM_TAGS)' -ldflags '$(LDFLAGS)' -o $$out ./cmd/coder-slim $(CALM)
		packed=coderd/slim/dist/$$(basename $$out).gz
		if [ ! -e $$packed ] || [ $$out -nt $$packed ]; then gzip -9nc $$out > $$packed.new; mv $$packed.new $$packed; fi
	done
	for packed in coderd/slim/dist/*.gz; do # of an earlier build with other platforms
		target=$${packed##*/coder-} && target=$${target%.gz}
		[[ " $(if $(filter all,$(SLIM)),$(ALL),$(SLIM)) " == *" $${target%.exe} "* ]] || rm -f $$packed build/slim/coder-$$target
	done
	[ -e build/slim/coder-$(HOST) ] && cp -f build/slim/coder-$(HOST) build/coder-slim || true

# npm follows the lock file; the dashboard is rebuilt when one of its sources is newer.
SITE := $(filter-out site/e2e/%,$(wildcard $(shell git ls-files --cached --others --exclude-standard site docs README.md 2>/dev/null)))

site: ## build the dashboard into site/dist; skipped without npm
	@command -v npm >/dev/null || { echo "npm is not installed: building the server without its dashboard" >&2; exit 0; }
	$(MAKE) --no-print-directory site/dist/index.html.br

site/node_modules/.package-lock.json: site/package.json site/package-lock.json
	@echo "install the packages of the dashboard"
	cd site && npm ci --no-audit --no-fund --no-update-notifier --loglevel error && touch node_modules/.package-lock.json

site/dist/index.html.br: site/node_modules/.package-lock.json $(SITE)
	@echo "build the dashboard"
	cd site && npm run --silent build

# pack PROGRAM ARCH FOLDER: make a deb, an rpm and an apk package. The commit's time is the only one in them.
define pack
manual() { # PROGRAM...: writes the manual pages that packages have
	rm -rf build/man
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) "$$@" docs gen-man build/man
	gzip -9n build/man/*.1
}
pack() {
	mkdir -p "$$3"
	for kind in deb rpm apk; do
		VERSION=$(NUMBER) PROGRAM=$$1 ARCH=$$2 SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) \
			$(NFPM) package --config packaging/nfpm.yaml --packager $$kind --target "$$3/codermesh_$(NUMBER)_linux_$$2.$$kind"
	done
}
endef

packages: build ## make deb, rpm and apk packages of build/coder in build/packages
	$(pack)
	rm -rf build/packages
	manual build/coder
	pack build/coder $$($(GO) env GOARCH) build/packages

image-context: build # what packaging/Dockerfile copies
	mkdir -p build/image
	cp build/coder build/NOTICES.txt build/image/
	cp "$$(command -v terraform || command -v tofu)" build/image/terraform

image: image-context ## build the image codermesh with Docker: the server; see packaging/Dockerfile for the others
	docker build -t codermesh -f packaging/Dockerfile build/image

test-image: build ## build the images from a debootstrap base, and make a workspace with them (as root)
	@scripts/test-prerequisites
	scripts/test-image

test-docker-starter: build ## run the starter docker with its real provider in real containers (as root): before each release
	@scripts/test-prerequisites
	scripts/test-docker-starter

test-packages: build ## install, upgrade and remove the packages in a booted container (as root)
	@scripts/test-prerequisites
	$(PACKAGE_TESTS)

test-charts: ## lint and render the Helm charts, and check their objects against the types of Kubernetes
	$(GO) test -C tools/charts ./...

test-rules: ## check the alert rules and the Grafana dashboard with Prometheus' parsers
	$(GO) test -C tools/rules ./...

# Two commands: a shell with -e goes on after a failure on the left of "&&".
define PACKAGE_TESTS
$(pack)
manual build/coder
mkdir -p $(RESULTS)
$(GO) test -C tools/release ./...
$(TESTSUM) --jsonfile $(RESULTS)/packaging.json -- -count=1 -tags packages -timeout 15m ./packaging
endef

# test-packages and test-image for the program that is there.
test-installs:
	@$(PACKAGE_TESTS)
	if [ "$$(id -u)" = 0 ]; then scripts/test-image; else echo "the images are not tested: that requires root"; fi

release: export GOTOOLCHAIN := $(RELEASE_GO)
release: export RELEASED := yes
release: ## make a release for all platforms in build/release: archives, packages, checksums, SBOM, release notes
	@command -v npm >/dev/null || { echo "a release contains the dashboard: install npm" >&2; exit 1; }
	$(VULN) -standard ./...
	rm -f $(NOTICES)
	$(MAKE) slim site build/NOTICES.txt SLIM=all
	$(GO) run -C tools/release . -root ../.. -cli ../../build/slim -programs ../../coderd/slim/dist $(SIGN)
	$(pack)
	$(launch)
	rm -rf build/release build/full
	mkdir -p build/release build/full
	export CGO_ENABLED=0
	manual $(GO) run -tags '$(FULL_TAGS)' -ldflags '$(LDFLAGS)' ./cmd/coder
	for target in $(FULL); do
		launch $$target
		CGO_ENABLED=0 GOOS=$${target%%-*} GOARCH=$${target#*-} $(GO) build -tags '$(FULL_TAGS)' -ldflags '$(LDFLAGS)' -o build/full/coder-$$target ./cmd/coder
		pack build/full/coder-$$target $${target#*-} build/release
	done
	if [ -e build/full/coder-$(HOST) ]; then
		build/full/coder-$(HOST) version | grep -qF 'coder $(VERSION) ' || { echo "the programs do not have exactly the version $(VERSION)" >&2; exit 1; }
	fi
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(GO) run -C tools/release . -version $(NUMBER) -root ../.. -full ../../build/full -cli ../../build/slim -out ../../build/release $(SIGN)

release-key: ## make the key that signs releases: RELEASE_KEY, the file to write, and RELEASE_PASSWORD_FILE, which holds its password
	@$(GO) run -C tools/release . -new-key $(abspath $(or $(RELEASE_KEY),$(error RELEASE_KEY must name the file to write))) \
		$(if $(RELEASE_PASSWORD_FILE),-password-file $(abspath $(RELEASE_PASSWORD_FILE)))

release-check: ## make the release twice, in two clones of the last commit, and compare the checksums
	work=$$(mktemp -d)
	trap 'rm -rf "$$work"' EXIT
	for clone in one two/deeper; do
		git clone --quiet . "$$work/$$clone"
		$(MAKE) -C "$$work/$$clone" release
	done
	diff "$$work/one/build/release/SHA256SUMS" "$$work/two/deeper/build/release/SHA256SUMS"
	echo "both builds have the same checksums:"
	cat "$$work/one/build/release/SHA256SUMS"

# The browser suite runs in two halves at the same time, each with its own server and browser: it waits for processes most of its time. Their network is
# their own: a browser gives up its requests when the machine gets another interface, as it does in e2e.
define SITE_TESTS
command -v npm >/dev/null || { echo "the dashboard's tests require npm"; exit 1; }
mkdir -p $(RESULTS)
logs=$(abspath $(RESULTS))
cd site
failed=
npm test >"$$logs/browser-0.log" 2>&1 || failed=yes
../scripts/own-network npm run e2e -- --shard=1/2 >"$$logs/browser-1.log" 2>&1 & first=$$!
../scripts/own-network npm run e2e -- --shard=2/2 >"$$logs/browser-2.log" 2>&1 || failed=yes
wait $$first || failed=yes
cat "$$logs"/browser-*.log
[ -z "$$failed" ]
endef

# Two parts run at a time. e2e and the browser suite, which take longest, come first: they wait for processes half of their time. With three at a time
# the processors are never idle, and tests wait for each other.
PARTS := go-e2e test-browser go-race go-plain go-windows test-installs

test: build ## run all tests; as root also those that need namespaces, containers and other users
	@scripts/test-prerequisites windows
	rm -rf $(RESULTS) && mkdir -p $(RESULTS)
	echo "Each part prints its output when it ends: $(PARTS)."
	failed=
	scripts/in-memory $(MAKE) --no-print-directory --keep-going --jobs=2 --output-sync=target $(addprefix part-,$(PARTS)) || failed=yes
	$(GO) run -C tools/suite . -logs $(TEST_LOGS) $(RESULTS)/*.json
	[ -e $(RESULTS)/test-browser ] || for log in $(RESULTS)/browser-*.log; do sed -n '/Failed \(Tests\|Suites\)/,$$p' "$$log" | head -n 80 || :; done
	for part in $(PARTS); do [ -e $(RESULTS)/$$part ] || echo "The part $$part failed. To run all of it again: make $$part"; done
	[ -z "$$failed" ]

part-%: %
	@touch $(RESULTS)/$*

prerequisites:
	@scripts/test-prerequisites

test-browser:
	$(SITE_TESTS)

test-site: build ## run the dashboard's unit tests and the browser suite against build/coder
	@scripts/test-prerequisites
	$(SITE_TESTS)

docs: site/node_modules/.package-lock.json ## build the documentation as static pages in build/docs
	@cd site
	npm exec -- vite build --config vite.docs.ts --mode browser --logLevel warn
	npm exec -- vite build --config vite.docs.ts --logLevel warn
	node build/docs/main.js ../docs ../build/docs

screenshots: RELEASED := yes# pictures show the version of a release
screenshots: build ## update docs/screenshots with the browser suite
	cd site && SCREENSHOTS=1 npm run e2e

recordings: build ## update docs/recordings, terminal sessions that asciinema plays, and the README's film of one (needs img2webp of Debian's webp)
	$(TEST) -count=1 -run TestRecordings ./e2e -record
	node site/scripts/film.mjs first

# These are tested with the race detector here, where most goroutines meet: the mesh, what runs in workspaces, and the server's events. `make
# test-race` tests everything with it, each night and before a release. A package here costs more than its tests: all that it imports is compiled
# a second time.
RACED := agent coordinator tailnet coderd/pubsub
# Tests have the build tags of the binary that ships. The linter has them too, so that the two share what they compile. It includes vet.
# Without the tables of debuggers, which stack traces do not need, a link takes a quarter less.
TEST_FLAGS := -vet=off -ldflags=-w -tags '$(FULL_TAGS)'
TEST       := CGO_ENABLED=0 $(GO) test $(TEST_FLAGS)

# Releases compile all of it. To check types takes seconds for each system, and a build minutes.
cross: ## check that the program compiles for other systems
	@$(GO) run -C tools/cross . -C ../.. -tags '$(SLIM_TAGS)' -target darwin-amd64 -target darwin-arm64 -target windows-amd64 -target windows-arm64 \
		./cmd/coder-slim ./provisionerd/...
	$(GO) run -C tools/cross . -C ../.. -tags '$(FULL_TAGS)' -target linux-arm64 ./cmd/coder

# What go-race and go-plain test. e2e is a part of its own.
define packages
all=$$($(GO) list ./... | grep -v '/e2e$$')
raced=$$(printf '^github.com/codermesh/codermesh/v2/(%s)(/|$$)' "$$(echo $(RACED) | tr ' ' '|')")
plain='/provisionerd/terraform$$|/internal/(layout|syntax)$$' # they run other programs, or parse megabytes one after the other
with_race=$$(grep -E "$$raced" <<<"$$all" | grep -vE "$$plain")
bulk=$$(git grep -lE '^func Test(Simulated|Bulk)' -- $(patsubst %,'%/*_test.go',$(RACED)) | xargs -n1 dirname | sort -u | sed 's|^|./|')
long='./region ./coderd ./coderd/database/embedded' # they wait most of their time: begun last, they would run alone
without="$$(grep -E "$$plain" <<<"$$all") $$long $$(grep -vE "$$raced" <<<"$$all")"
endef

# Tests called TestSimulated… and TestBulk… move many megabytes: with the race detector they take three times as long, which sees the same goroutines
# in the other tests of their packages. go-plain runs them.
BULK := ^Test(Simulated|Bulk)

# The limits of go-race, go-plain and go-e2e guard against a test that hangs. They are long, because the parts share a machine that may be slow.
go-race:
	@$(packages)
	mkdir -p $(RESULTS)
	$(TESTSUM) --jsonfile $(RESULTS)/race.json -- $(TEST_FLAGS) -race -skip '$(BULK)' -timeout 60m $$with_race

go-plain:
	@$(packages)
	mkdir -p $(RESULTS)
	failed=
	CGO_ENABLED=0 $(TESTSUM) --jsonfile $(RESULTS)/plain.json -- $(TEST_FLAGS) -timeout 60m $$without || failed=yes
	CGO_ENABLED=0 $(TESTSUM) --jsonfile $(RESULTS)/bulk.json -- $(TEST_FLAGS) -run '$(BULK)' -timeout 20m $$bulk || failed=yes
	[ -z "$$failed" ]

go-e2e:
	@mkdir -p $(RESULTS)
	CGO_ENABLED=0 $(TESTSUM) --jsonfile $(RESULTS)/e2e.json -- $(TEST_FLAGS) -timeout 95m ./e2e

test-only: build ## run some tests again: make test-only PKG=./e2e RUN='^TestLab$$' RACE=-race
	@scripts/test-prerequisites
	CGO_ENABLED=$(if $(RACE),1,0) $(GO) test $(TEST_FLAGS) -tags 'packages,$(FULL_TAGS)' -count=1 $(RACE) -timeout 20m -run '$(RUN)' $(PKG)

check: build ## build, lint, and run the unit tests: what to run for each change, before a commit
	@scripts/test-prerequisites
	rm -rf $(RESULTS) && mkdir -p $(RESULTS)
	failed=
	$(LINT) run --allow-parallel-runners --build-tags '$(FULL_TAGS)' ./... || failed=yes
	(cd site && npm run lint && npm test) || failed=yes
	CGO_ENABLED=0 $(TESTSUM) --jsonfile $(RESULTS)/unit.json -- $(TEST_FLAGS) $$($(GO) list ./... | grep -vE '/(e2e|region)$$') || failed=yes
	$(GO) run -C tools/suite . -logs $(TEST_LOGS) $(RESULTS)/unit.json
	[ -z "$$failed" ]

test-under-load: ## run all tests beside programs that use twice the processors
	@scripts/test-prerequisites
	stress-ng --quiet --cpu "$$((2 * $$(nproc)))" & load=$$!
	trap 'kill $$load' EXIT
	$(MAKE) --no-print-directory test

# What runs in workspaces on Windows. Wine shows most of it: docs/agent.md has what it cannot show.
WINDOWS_TESTS := ./agent/autostart ./agent/ports ./agent/proc ./agent/script ./agent/sshd ./agent/terminal ./agent/usage

test-windows: build go-windows ## run the agent's tests for Windows in Wine, and an agent for a server here (on amd64, with Debian's wine64)
	@[ "$$(uname -m)" = x86_64 ] || exit 0
	mkdir -p build/windows
	CGO_ENABLED=0 GOOS=windows GOARCH=amd64 $(GO) build -tags '$(SLIM_TAGS)' -ldflags '$(LDFLAGS)' -o build/windows/coder.exe ./cmd/coder-slim $(CALM)
	CGO_ENABLED=0 scripts/wine/session $(GO) test $(TEST_FLAGS) -tags 'wine,$(FULL_TAGS)' -count=1 -timeout 20m -run '^TestWindowsAgent$$' ./e2e

# Without the whole agent: on a busy machine the terminal of TestWindowsAgent does not always end.
go-windows:
	@[ "$$(uname -m)" = x86_64 ] || { echo "the agent for Windows is not tested: Wine runs programs for amd64 on amd64 only"; exit 0; }
	scripts/test-prerequisites windows
	mkdir -p $(RESULTS)
	scripts/wine/session $(TESTSUM) --jsonfile $(RESULTS)/windows.json --raw-command -- \
		env CGO_ENABLED=0 GOOS=windows GOARCH=amd64 $(GO) test -json $(TEST_FLAGS) -count=1 -timeout 20m -exec '$(CURDIR)/scripts/wine/run' $(WINDOWS_TESTS)

# What runs on a Mac: the command line, and the agent's parts for each system.
DARWIN_TESTS := ./cmd/coder/cli/... ./internal/... ./meshclient/... ./sshmux/... $(WINDOWS_TESTS) ./agent/instance ./agent/keeper

test-darwin: ## on a Mac, test the command line and the agent; elsewhere, check that these tests compile for one
	@if [ "$$(uname)" = Darwin ]; then
		$(TEST) -timeout 20m $(DARWIN_TESTS)
	else
		$(GO) run -C tools/cross . -C ../.. -tags '$(SLIM_TAGS)' -tests -target darwin-arm64 $(DARWIN_TESTS)
	fi

fuzz: ## search for inputs that break a parser, for TIME in each fuzz target: make fuzz TIME=10m PKG=./sshmux
	@for package in $(or $(PKG),$$(git grep -l '^func Fuzz' -- '*_test.go' | xargs -n1 dirname | sort -u | sed 's|^|./|')); do
		for target in $$($(TEST) -list '^Fuzz' $$package | grep ^Fuzz); do
			$(TEST) -run '^$$' -fuzz "^$$target$$" -fuzztime $(or $(TIME),10s) $$package
		done
	done

mutate: ## show which small faults the tests of packages do not notice: make mutate PKG=./coderd/rbac N=5 SEED=1
	@$(GO) run -C tools ./mutate -C .. -n '$(or $(N),5)' -seed '$(or $(SEED),1)' -tags '$(FULL_TAGS)' $(PKG)

test-race: build ## run all Go tests with the race detector
	@scripts/test-prerequisites
	$(GO) test $(TEST_FLAGS) -race -timeout 30m ./...

e2e: build ## run the tests that drive the built binaries
	@scripts/test-prerequisites
	$(TEST) -count=1 -timeout 20m ./e2e/...

# What needs no running program, and compiles tools as large as the product. A forge runs it beside the tests.
static: lint cross test-darwin verify test-charts test-rules ## run all linters, compile for other systems, and check generated code, charts and alert rules

lint: site/node_modules/.package-lock.json ## run gofmt, golangci-lint, deadcode, a search for known vulnerabilities, and the dashboard's linters
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { echo "gofmt differs, run: make fmt"; gofmt -l $$(git ls-files '*.go'); exit 1; }
	$(LINT) run --allow-parallel-runners --build-tags '$(FULL_TAGS)' ./...
	base=$$(git merge-base HEAD origin/main 2>/dev/null || git merge-base HEAD main 2>/dev/null || git rev-parse HEAD)
	$(LINT) run -c tools/lint/lines.yml --allow-parallel-runners --new-from-rev "$$base" --build-tags '$(FULL_TAGS)' ./...
	CGO_ENABLED=0 scripts/deadcode '$(FULL_TAGS)'
	$(GO) test -C tools ./...
	$(GO) test -C tools/vuln ./...
	$(GO) test -C tools/suite ./...
	$(GO) test -C tools/cross ./...
	$(VULN) ./...
	$(GO) tool -modfile=tools/lint/go.mod actionlint
	cd site && npm run lint

update-vulnerabilities: ## take the newest database of known vulnerabilities, and check with it
	$(GO) get -C tools/vuln golang.org/x/vulndb@latest golang.org/x/vuln@latest
	$(VULN) ./...

fmt: site/node_modules/.package-lock.json ## format the Go code and the dashboard
	gofmt -w $$(git ls-files '*.go')
	cd site && npm run format

# Generators look at the sources as they are compiled for the program, which Go's cache has.
GENERATE = CGO_ENABLED=0 GOFLAGS='$(GOFLAGS) -tags=$(FULL_TAGS)' $(GO) run -C tools

gen: ## regenerate protocols, queries, the description of the API, and the dashboard's types and routes
	@mkdir -p build
	$(TOOL) buf generate
	$(TOOL) sqlc generate
	$(GENERATE) ./tsgen -C .. > build/types.gen.ts
	mv build/types.gen.ts site/src/api/types.gen.ts
	$(GENERATE) ./apigen -C .. > build/api.gen.json
	mv build/api.gen.json coderd/reference/api.gen.json
	$(GENERATE) ./tsgen -C .. -routes > build/routes.gen.ts
	mv build/routes.gen.ts site/src/api/routes.gen.ts

verify: ## fail if generated code differs from its source
	@fresh=$$(mktemp -d)
	trap 'rm -rf "$$fresh"' EXIT
	trap 'echo "Generated code differs from its source, run: make gen" >&2' ERR
	$(TOOL) buf generate -o "$$fresh"
	(cd "$$fresh" && find . -type f) | while read -r file; do cmp "$$fresh/$$file" "$$file"; done
	$(TOOL) sqlc diff
	$(GENERATE) ./tsgen -C .. | cmp - site/src/api/types.gen.ts
	$(GENERATE) ./apigen -C .. | cmp - coderd/reference/api.gen.json
	$(GENERATE) ./tsgen -C .. -routes | cmp - site/src/api/routes.gen.ts

bench: build ## benchmark the product against baselines; writes build/bench.json
	$(GO) run ./bench -coder build/coder -out build/bench.json

bench-docker: build ## measure create to ssh of the starter docker, with and without a pool (as root); writes build/bench-docker.json
	@scripts/test-prerequisites
	scripts/test-docker-starter bench

bench-devices: build ## measure what a device with a stock WireGuard gets (as root); writes build/bench-devices.json
	@scripts/test-prerequisites
	$(GO) build -o build/bench ./bench
	build/bench -coder build/coder -devices -out build/bench-devices.json

bench-connect: build ## measure what coder connect gives to the programs of a laptop (as root); writes build/bench-connect.json
	@scripts/test-prerequisites
	$(GO) build -o build/bench ./bench
	build/bench -coder build/coder -connect -out build/bench-connect.json

bench-scale: build ## measure how much one server carries; writes build/bench-scale.json
	$(GO) run ./bench/scale -coder build/coder -out build/bench-scale.json

bench-wan: build ## benchmark over a simulated long path, with and without losses (as root)
	$(GO) build -o build/bench ./bench
	build/bench -coder build/coder -wan -out build/bench-wan.json
	build/bench -coder build/coder -wan -loss 0.001 -out build/bench-wan-loss.json

bench-fair: ## measure what streams leave to other senders on one wire, and transfers to keystrokes (as root)
	$(GO) build -o build/bench-fair ./bench/fair
	build/bench-fair

soak: build ## use a deployment for DURATION, and plot memory, goroutines and descriptors: make soak DURATION=1h; writes build/soak.csv and .svg
	$(GO) run ./bench/soak -coder build/coder -duration $(or $(DURATION),1h) -out build/soak

clean: ## remove build output
	rm -rf build coderd/slim/dist/* coderd/notices/dist/* site/build site/dist/*

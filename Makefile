# The commands of this repository. `make help` lists them.

GO       ?= go
FUZZTIME ?= 10s
# Packages with tests that are skipped without root: BPF, namespaces, disks of their own.
ROOT_PACKAGES = ./internal/agent/journal ./internal/auth ./internal/bpf/... ./internal/diskcache ./internal/profile/format ./internal/proc/... ./internal/lang ./internal/spool ./internal/store/disk ./internal/unwind/... ./internal/symbol ./internal/sampler/... ./internal/recorder ./internal/doctor ./cmd/... ./test/deploy ./test/faults ./test/languages ./test/levels ./test/oracle ./test/truth

.PHONY: build test test-busy test-root test-kernels test-runtimes test-faults test-docs race bench generate lint fuzz deps help
.DEFAULT_GOAL := build

# What "atys version" says where go does not see the repository, as in a worktree. Empty without git.
stamp = $(shell commit=$$(git rev-parse HEAD 2>/dev/null) && \
	echo "$$(git describe --tags --exact-match --match 'v[0-9]*' 2>/dev/null || echo devel)" "$$commit" \
	"$$(TZ=UTC git log -1 --date=format-local:%Y-%m-%dT%H:%M:%SZ --format=%cd)" "$$(test -z "$$(git status --porcelain)" && echo clean || echo modified)")

build: ## build bin/atys, one static binary
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags "-X 'main.stamp=$(stamp)'" -o bin/atys ./cmd/atys

test: ## run every Go test; as root on Debian install first what they need (ATYS_NO_DEPS=1: do not)
	@GO="$(GO)" .ci/test

test-busy: ## run make test beside builds and a busy loop on each CPU: it must pass there too
	@.ci/busy $(MAKE) test

test-root: ## run the tests that need root, never from the cache
	@test "$$(id -u)" = 0 || { echo "make test-root: these tests need root: run 'sudo make test-root'" >&2; exit 1; }
	$(GO) test -count=1 -timeout 15m $(ROOT_PACKAGES)

test-kernels: ## boot Debian's 6.1 kernel in qemu, load every BPF program and record there
	$(GO) test -tags kernels -count=1 -timeout 20m -v ./test/kernels

test-runtimes: ## fetch every version of every runtime, record each, write docs/runtimes.md
	@.ci/runtimes
	ATYS_MATRIX=1 $(GO) test -json -count=1 -timeout 60m ./test/languages | $(GO) run ./test/languages/matrix >docs/runtimes.new || \
		{ status=$$?; cat docs/runtimes.new; rm docs/runtimes.new; exit $$status; }
	mv docs/runtimes.new docs/runtimes.md

test-faults: ## kill, starve and cut off servers and agents for ATYS_FAULTS (10m); make test has the short form
	ATYS_FAULTS=$${ATYS_FAULTS:-10m} $(GO) test -count=1 -timeout 90m -v ./test/faults

test-docs: ## execute the commands shown in the README and the guides, but for those marked as not run
	$(GO) test -tags docs -count=1 -timeout 20m -run '^TestCommands$$' -v ./internal/house

race: ## run the short tests under the race detector (needs gcc)
	$(GO) test -race -short -timeout 15m ./...

bench: ## list the benchmarks; BENCH=name runs one, ARGS are passed to it
	@if [ -n "$(BENCH)" ]; then $(GO) run ./bench/$(BENCH) $(ARGS); \
	else echo "make bench BENCH=name, where name is one of:"; \
		$(GO) list -f '{{if eq .Name "main"}}{{.Dir}}: {{.Doc}}{{end}}' ./bench/... 2>/dev/null | sed "s,^$(CURDIR)/bench/,  ,"; fi

generate: ## rebuild what is generated: BPF objects, protobuf, the UI
	$(GO) generate ./...

lint: ## gofmt, go vet, staticcheck, and the rules of the house
	@bad=$$(gofmt -l $$(find . -name '*.go' -not -path '*/testdata/*' -not -path '*/node_modules/*')); \
		test -z "$$bad" || { echo "gofmt would change:" >&2; echo "$$bad" >&2; exit 1; }
	$(GO) vet ./...
	$(GO) vet -tags docs,kernels ./internal/house ./test/...
	$(GO) tool staticcheck ./...
	$(GO) test -run '^TestHouse$$' ./internal/house

fuzz: ## run every fuzz target for FUZZTIME (10s)
	@.ci/fuzz $(FUZZTIME)

deps: ## install what tests, generation and benchmarks need (Debian; elsewhere: say what is missing)
	@.ci/deps

help: ## list these commands
	@sed -n 's/^\([a-z-]*\): ## \(.*\)/\1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{ printf "  make %-14s %s\n", $$1, $$2 }'

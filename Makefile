# tensorturn: two commands need nothing but Go (and a C compiler for the race detector): make demo, make test.
SHELL := /bin/bash
GO ?= go
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -s -w -X main.version=$(VERSION)
SEEDS ?= 100
KILLS ?= 20

.DEFAULT_GOAL := help
.PHONY: help build build-nvml demo test test-outsiders test-v2-client check sim sim-bugs chaos fuzz torch test-torch bench experiments exactness exactness-arm64 image clean faults faults-mutations durability corruption files churn soak

help: ## print this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

build: ## build bin/tensorturn, one static binary
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/tensorturn ./cmd/tensorturn

build-nvml: ## build bin/tensorturn for this Linux with NVIDIA's library bound in: XID errors and energy too
	CGO_ENABLED=1 CGO_CFLAGS="-O2 -Wno-deprecated-declarations" $(GO) build -trimpath -ldflags '-X main.version=$(VERSION)' -o bin/tensorturn ./cmd/tensorturn

demo: build ## a hub and three agents on this machine train the digits data, one is killed on the way
	bin/tensorturn demo

check: ## formatting and vet
	@out=$$(gofmt -l cmd domain projections agent broker test); test -z "$$out" || { echo "gofmt: $$out"; exit 1; }
	$(GO) vet ./...

# The race detector is for packages with goroutines: the domain, the views and the simulator have none, and the tests of
# real processes build the program as it ships.
# Everything but the race detector is compiled as the program ships, without cgo and with short paths: vet, the tests, and the
# program that they and `make build` make then share one set of compiled packages instead of three.
export CGO_ENABLED := 0
export GOFLAGS := $(shell $(GO) env GOFLAGS) -trimpath
RACY := ./agent/... ./broker/... ./cmd/... ./projections

test: check ## every test, with the race detector where goroutines are
	$(GO) test -vet=off -timeout 8m ./domain/... ./projections/... ./test/...
	CGO_ENABLED=1 $(GO) test -vet=off -timeout 8m -race $(RACY)

sim: ## simulate SEEDS=100 worlds, or one with its trace: make sim SEED=7
	$(GO) test ./test/sim -count=1 -v -timeout 60m -run 'TestSeeds|TestSeed$$' -args -seeds=$(SEEDS) $(if $(SEED),-seed=$(SEED) -trace)

sim-bugs: ## plant ten bugs, one after another, and print which of BUGS=2000 seeds finds each, and what it says
	$(GO) test ./test/sim -count=1 -v -timeout 60m -run 'TestPlantedBugs' -args -bugs=$(or $(BUGS),2000)

exactness-arm64: ## golden merge vectors on arm64, under Debian's qemu-user (installed as root if it is missing)
	@command -v qemu-aarch64 >/dev/null || apt-get install -y --no-install-recommends qemu-user
	CGO_ENABLED=0 GOOS=linux GOARCH=arm64 $(GO) test -c -o .cache/merge.arm64 ./domain/merge
	cd domain/merge && qemu-aarch64 $(CURDIR)/.cache/merge.arm64 -test.run 'Golden' -test.v

chaos: ## kill the hub KILLS=20 times at random moments of one run: make chaos SEED=7
	$(GO) test ./test/e2e -count=1 -v -timeout 5m -run 'TestHubKilled' -args -kills=$(KILLS) $(if $(SEED),-seed=$(SEED))

FAULTS := $(GO) run ./test/faults
faults: ## thirty faults on real processes, a table with pass or fail (10 minutes; some rows need root): make faults ROWS=3,21
	$(FAULTS) $(if $(ROWS),-rows $(ROWS)) -seed $(or $(SEED),1)

faults-mutations: ## the same rows with their protection off or the fault made fatal: each must fail
	$(FAULTS) -mutate $(if $(ROWS),-rows $(ROWS)) -seed $(or $(SEED),1)

durability: ## KILLS=200 kills and CUTS=50 power cuts of the hub, against what a client outside was told
	$(FAULTS) -do durability -kills $(if $(filter command line,$(origin KILLS)),$(KILLS),200) -cuts $(or $(CUTS),50)

corruption: ## CHANGES=1000 random changes of stored bytes: detected and named, or rebuilt to equal state, in 9 GB of addresses at most
	ulimit -v 9000000 && $(FAULTS) -do corruption -changes $(or $(CHANGES),1000) -seed $(or $(SEED),1)

files: ## CHANGES=400 damages of the files beside the store, hub's and agent's (only those with ONLY=agent.json in their path): the real processes go on, or name file and next step
	$(FAULTS) -do files -changes $(or $(CHANGES),400) $(if $(ONLY),-rows $(ONLY)) -seed $(or $(SEED),1)

churn: ## FAULTS_N=120 kills of hub, agents and trainers in MINUTES=10 on MACHINES=8, rounds of SHARE=100 chunks each: how much of the pool's time counted (LEAST=0.90)
	$(FAULTS) -do churn -faults $(or $(FAULTS_N),120) -minutes $(or $(MINUTES),10) -least $(or $(LEAST),0.90) $(if $(MACHINES),-machines $(MACHINES)) $(if $(SHARE),-share $(SHARE))

soak: ## MINUTES=30 of work with forced failures: memory, descriptors and goroutines of hub and agents stay flat
	$(FAULTS) -do soak -minutes $(or $(MINUTES),30)

fuzz: ## every fuzz target for FUZZTIME=40s, one after another, as a table; some: ONLY=safetensors
	@GO='$(GO)' FUZZTIME='$(or $(FUZZTIME),40s)' ONLY='$(or $(ONLY),.)' test/fuzz/run.sh

bench: build ## speeds, ratios and memory, with the machine named; bytes of each codec against data parallel, the loss beside them
	$(GO) run ./test/bench
	$(GO) run ./test/experiments -only E4

OUTSIDERS := $(CURDIR)/.cache/outsiders
PROMTOOL ?= $(shell command -v promtool || echo $(OUTSIDERS)/prometheus/usr/bin/promtool)
test-outsiders: ## stock clients follow a hub: nats-py, the nats tool, curl, a webhook receiver; promtool and the AsyncAPI parser judge
	@test -x .cache/outsiders/py/bin/python || { python3 -m venv .cache/outsiders/py && .cache/outsiders/py/bin/pip --quiet install 'nats-py[aiohttp,nkeys]==2.16.0'; }
	@test -x .cache/outsiders/bin/nats || GOBIN=$(OUTSIDERS)/bin $(GO) install github.com/nats-io/natscli/nats@v0.5.0
	@test -x $(PROMTOOL) || ! command -v apt-get dpkg-deb >/dev/null || { mkdir -p $(OUTSIDERS)/prometheus && cd $(OUTSIDERS)/prometheus && \
		apt-get download --quiet prometheus && dpkg-deb -x prometheus_*.deb . && rm prometheus_*.deb usr/bin/prometheus; } || echo "no promtool: its library alone judges the metrics"
	@test -d .cache/outsiders/node_modules/@asyncapi || ! command -v npm >/dev/null || \
		npm install --silent --no-audit --no-fund --ignore-scripts --prefix $(OUTSIDERS) @asyncapi/parser@3.6.6 || echo "no AsyncAPI parser: its test is left out"
	$(GO) test -count=1 -v ./test/outsiders -args -python=$(OUTSIDERS)/py/bin/python -nats=$(OUTSIDERS)/bin/nats \
		$$(test -x $(PROMTOOL) && echo -promtool=$(PROMTOOL)) $$(test -d .cache/outsiders/node_modules/@asyncapi && echo -asyncapi=$(OUTSIDERS))

ONLY ?=
experiments: ## what the product claims about learning, measured: all (some 20 minutes of two cores), or ONLY=E13,E13n
	$(GO) build -o .cache/experiments ./test/experiments
	.cache/experiments -resume .cache/experiments.json -write test/experiments/RESULTS.md $(if $(ONLY),-only $(ONLY))

test-v2-client: ## NVIDIA's client for the Open Inference Protocol asks a deployed model: JSON, bytes, a wrong key, TLS
	@test -x .cache/v2/py/bin/python || { python3 -m venv .cache/v2/py && .cache/v2/py/bin/pip --quiet install 'tritonclient[http]==2.73.0'; }
	$(GO) test -count=1 -v -run TestTritonClient ./test/serving -args -python=$(CURDIR)/.cache/v2/py/bin/python

exactness: ## golden merge and vote vectors under GOAMD64=v1 and v3
	GOAMD64=v1 $(GO) test -count=1 ./domain/merge/ ./domain/vote/
	GOAMD64=v3 $(GO) test -count=1 ./domain/merge/ ./domain/vote/

PYTHON ?=
TORCH := python3-torch libopenblas0-pthread dataset-fashion-mnist
torch: ## PyTorch, Fashion-MNIST and the package safetensors: Debian's, installed as root, unless PYTHON=/path/to/python has torch
	@test -n "$(PYTHON)" || { /usr/bin/python3 -c 'import torch' 2>/dev/null && test -d /usr/share/datasets/fashion-mnist; } || \
		apt-get install -y --no-install-recommends $(TORCH) || { apt-get update && apt-get install -y --no-install-recommends $(TORCH); }
	@test -d .cache/safetensors || $(or $(PYTHON),/usr/bin/python3) -m pip install -q --no-deps --target .cache/safetensors safetensors==0.5.3 || \
		python3 -m pip install -q --no-deps --target .cache/safetensors safetensors==0.5.3 || { rm -rf .cache/safetensors; echo "the package safetensors is not at hand: what needs it is left out" >&2; }

test-torch: torch ## owners' PyTorch scripts; FULL=1 takes three seeds, SMALL=1 a sixth of one and little else (2 minutes)
	TENSORTURN_TEST_SAFETENSORS=$$(test -d .cache/safetensors && echo $(CURDIR)/.cache/safetensors) \
	TENSORTURN_TEST_PYTHON=$(or $(PYTHON),/usr/bin/python3) $(GO) test -count=1 -v -timeout 60m ./test/torch $(if $(SMALL),-run 'TestFashion$$|TestKeepAndResume|TestLines') $(if $(FULL),-args -full) $(if $(SMALL),-args -small)

image: build ## container image FROM scratch with the built binary
	docker build -t tensorturn:$(VERSION) -t tensorturn:latest -f Dockerfile bin

clean: ## remove what was built
	rm -rf bin .cache

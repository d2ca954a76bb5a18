# Every verb is a line over `go`, so that just itself stays optional.

# list the verbs
default:
    @just --list

# everything in one process, with a demo worker and a dashboard
dev *args:
    go run ./cmd/carillon dev {{args}}

# a cluster of three nodes and two workers, each a process of its own
cluster *args:
    go run ./cmd/carillon dev --nodes 3 {{args}}

# the tests that need nothing but Go (90 CPU seconds after the first build)
test:
    go test ./...

# what the tests take in wall time and CPU seconds, by package; CI fails above its limits
cpu *args:
    go run ./internal/tests/cpu {{args}}

# these and the long ones, as CI plays them but without the race detector
test-all *args="./...":
    CARILLON_TESTS=all go test -timeout 40m {{args}}

# all but those that begin with tests.WithoutRace, under the race detector
race *args="./...":
    CARILLON_TESTS=all go test -race -timeout 40m {{args}}

# the tests three times beside a load of six
busy *args:
    bash .ci/busy {{args}}

# the pages in Chromium: every page, every button, and a newcomer's first minute
browser *args:
    cd ui/browsertest && go test -mod=mod -count=1 -timeout 15m ./... {{args}}

# known holes in what is linked, by the Go vulnerability database (vuln.go.dev); before each release
vulns:
    go tool -modfile=tools.mod govulncheck ./...

# what CI runs
check:
    bash .ci/run

# format, vet, staticcheck
lint:
    test -z "$(gofmt -l .)"
    go vet ./...
    go tool -modfile=tools.mod staticcheck ./...

# fuzz each decoder for a while
fuzz time="30s":
    go test ./jobs -run '^$' -fuzz FuzzDecodeEnvelopes -fuzztime {{time}}
    go test ./bus/natsbus -run '^$' -fuzz Fuzz -fuzztime {{time}}

# random lives of jobs against the model of time: just lives 1h, or one of them: just lives 0s -life 394
lives for="1h" *args:
    go test -count=1 -timeout 0 -v ./controlplane -run 'TestLives$' -lives {{for}} {{args}}

# real processes that are killed, frozen and disconnected, in the full length of docs/guarantees.md (half an hour)
kill *args:
    CARILLON_TESTS=rough go test -count=1 -timeout 60m -v ./cmd/carillon/processtest {{args}}

# what a node says and does while its store is away, on each store (half an hour; needs root and promtool)
situations *args:
    CARILLON_TESTS=rough go test -count=1 -timeout 60m -v ./cmd/carillon/processtest -run TestSituationsOfTheStore {{args}}

# chaos tests for two minutes on raft, checked by the judge: what CI runs
chaos-short *args:
    go run ./chaos -store raft -for 75s -gap 1s -due-kills 8 -least-faults 10 -least-dues 1000 {{args}}

# the same for two hours: hundreds of faults on each store, and the leader killed around a due time a hundred times
chaos:
    go build -o bin/chaos ./chaos
    bin/chaos -store raft -due-kills 100 -faults none -for 1s -least-faults 100 -least-dues 5000
    bin/chaos -store raft -for 40m -least-faults 300 -least-dues 50000
    bin/chaos -store postgres -for 30m -least-faults 200 -least-dues 40000
    bin/chaos -store postgres -triggering distributed -for 15m -least-faults 100 -least-dues 20000
    bin/chaos -store mariadb -for 30m -least-faults 200 -least-dues 40000

# write docs/benchmarks-tables.md in five minutes, with River and asynq; or run one scenario: batch http latency delayed onekey heap flood pages lists
bench *scenarios="short":
    cd bench && go build -o ../bin/bench . && ../bin/bench {{scenarios}}

# the same with every store, scenario and setting, in about an hour and a half, or parts of it: peers seconds stores large fairness finished curves more pages
bench-full *parts:
    cd bench && go build -o ../bin/bench . && ../bin/bench full {{parts}}

# half of what goes through, for an hour (or -for 10m): whether memory, files or lateness grow
soak *args:
    cd bench && go build -o ../bin/bench . && ../bin/bench {{args}} soak

# the schedule engine beside others: answers and times
peers:
    cd jobs/schedule/peers && go test . && go test -run TestFigures -figures -v .

# a client that a generator makes of the API's own description, against a scheduler
client:
    cd api/clienttest && go test -v .

# render the Helm chart's examples and pack the chart into dist/chart; with -version v: as that version
chart *args:
    cd deploy/chart/charttest && go run . {{args}}

# build the program into bin/
build:
    go build -trimpath -o bin/carillon ./cmd/carillon

# all files of a release of the commit at HEAD, in dist/: just release v0.1.0; needs a signing key or -unsigned
release version *args:
    cd deploy/release && go build -o ../../bin/release .
    bin/release build {{version}} {{args}}

# check the signature and the checksums of a release: just verify-release dist -key <public key or file>
verify-release *args:
    cd deploy/release && go build -o ../../bin/release .
    bin/release verify {{args}}

# build a release twice, in two folders, and compare the bytes
reproduce-release version *args:
    cd deploy/release && go build -o ../../bin/release .
    bin/release reproduce {{version}} {{args}}

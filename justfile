# Every verb is a line over `go`, so that just itself stays optional.

# list the verbs
default:
    @just --list

# everything in one process, with a demo worker and a dashboard
dev *args:
    go run ./cmd/carillon dev {{args}}

# the tests that need nothing but Go (under 3 minutes after the first build)
test:
    go test ./...

# the same under the race detector
race:
    go test -race ./...

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

# real processes that are killed, frozen and cut off, as long and as rough as docs/guarantees.md says (half an hour)
kill *args:
    CARILLON_LONG=1 go test -count=1 -timeout 60m -v ./cmd/carillon/processtest {{args}}

# the figures of docs/benchmarks.md: batch latency delayed onekey heap flood, or all
bench *scenarios="all":
    cd bench && go build -o ../bin/bench . && ../bin/bench {{scenarios}}

# the schedule engine beside others: answers and times
peers:
    cd jobs/schedule/peers && go test . && go test -run TestFigures -figures -v .

# build the program into bin/
build:
    go build -trimpath -o bin/carillon ./cmd/carillon

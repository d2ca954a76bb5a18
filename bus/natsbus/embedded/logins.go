package embedded

import (
	"sync"
	"time"
)

const (
	// atOnce is how many connections of one machine may wait at the same time, for authentication or for
	// the end of their delay.
	atOnce = 64
	// longest is the longest delay for a wrong token. The first is a tenth of a second, and each further one from the
	// same machine twice that. It is shorter than what a server waits before it pings a connection, which confuses
	// clients that are not connected yet.
	longest = time.Second
	// forgiven is when a machine's wrong tokens are forgotten.
	forgiven = time.Minute
	// logEvery is how often a machine's wrong tokens are logged.
	logEvery = 10 * time.Second
	// maxMachines is how many are remembered; beyond, all are forgotten at once.
	maxMachines = 10_000
)

// logins slows connections with wrong tokens: guessing is hopeless anyway, but connections and log lines cost
// something. A right token is accepted at any time, with any number of wrong ones from the same address, as long as
// not more than atOnce wait.
type logins struct {
	mu sync.Mutex
	by map[string]*machine
}

type machine struct {
	here   int // authenticating now
	wrong  int
	last   time.Time // of a wrong token
	logged time.Time
}

func newLogins() logins { return logins{by: map[string]*machine{}} }

// begin counts a connection that authenticates; false refuses it. Each one that was not refused must call end.
func (k *logins) begin(from string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	m := k.by[from]
	if m == nil {
		if len(k.by) >= maxMachines {
			k.tidy(func(*machine) bool { return true })
		}
		m = &machine{}
		k.by[from] = m
	}
	if m.here >= atOnce {
		return false
	}
	m.here++
	return true
}

func (k *logins) end(from string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.by[from].here--
}

// failed returns the delay for one more wrong token.
func (k *logins) failed(from string) time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	m := k.by[from]
	m.wrong++
	m.last = time.Now()
	return min(100*time.Millisecond<<min(m.wrong-1, 10), longest)
}

// logs reports whether to log a refusal.
func (k *logins) logs(from string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	m := k.by[from]
	if time.Since(m.logged) < logEvery {
		return false
	}
	m.logged = time.Now()
	return true
}

// forget forgets machines that have been quiet.
func (k *logins) forget(now time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.tidy(func(m *machine) bool { return now.Sub(m.last) > forgiven })
}

// tidy forgets machines without a connection that authenticates. The lock is held.
func (k *logins) tidy(enough func(*machine) bool) {
	for from, m := range k.by {
		if m.here == 0 && enough(m) {
			delete(k.by, from)
		}
	}
}

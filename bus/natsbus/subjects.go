package natsbus

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/jobs"
)

// Every subject there is. <...> is one token, written by [token]; nothing that a user named goes in as it is.
//
//	offer.<term>.<tenant>.<app>                                    the shared lane of an app, in a leader's term
//	to.<tenant>.<app>.<name>.<start>                               a worker's personal lane (request), by start
//	call.<tenant>.<role>.<name>.<app>.<service>                    a call (request), by whom
//	signal.<tenant>.<topic>.<to>.<from tenant>.<role>.<name>.<app> a signal, for whom and by whom
//	inbox.<tenant>.<role>.<name>.<app>.>                           where a principal gets its answers
//
// Who speaks, and for which app, is in the subject, so that a server's permissions make it true (see [Permissions]),
// and everybody who hears it knows, whichever of several servers let the speaker in. The term is in
// the subject of offers, so that two leaders never share a stream and a new one's is ready before the old one goes.

// streamPrefix begins the name of a term's stream. The term follows.
const streamPrefix = "CARILLON_OFFERS_"

// group is the queue group of all who serve or receive: one of several gets each message.
const group = "carillon"

// none is the token of the empty name: it is no name's token, since = is always followed by two digits.
const none = "=none"

// token writes a name as one token of a subject. Letters, digits, - and _ stand for themselves, any other byte is
// =XX, as dots are in billing=2Eeu. It is reversed by [name], and is a legal name of a consumer, too.
func token(s string) string {
	if s == "" {
		return none
	}
	if isPlain(s) {
		return s
	}
	var b strings.Builder
	for i := range len(s) {
		if isPlain(s[i : i+1]) {
			b.WriteByte(s[i])
		} else {
			fmt.Fprintf(&b, "=%02X", s[i])
		}
	}
	return b.String()
}

// isPlain says whether all of s stands for itself.
func isPlain(s string) bool {
	for i := range len(s) {
		c := s[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_') {
			return false
		}
	}
	return true
}

// name is the reverse of [token]; false says that token never wrote this.
func name(t string) (string, bool) {
	if t == none {
		return "", true
	}
	if isPlain(t) {
		return t, t != ""
	}
	var b strings.Builder
	for i := 0; i < len(t); i++ {
		if t[i] != '=' {
			b.WriteByte(t[i])
			continue
		}
		if len(t) < i+3 {
			return "", false
		}
		c, err := strconv.ParseUint(t[i+1:i+3], 16, 8)
		if err != nil {
			return "", false
		}
		b.WriteByte(byte(c))
		i += 2
	}
	s := b.String()
	return s, token(s) == t
}

func streamName(term uint64) string { return streamPrefix + strconv.FormatUint(term, 10) }

// termOf is the term of a stream of ours; false says that it is not one.
func termOf(stream string) (uint64, bool) {
	digits, ours := strings.CutPrefix(stream, streamPrefix)
	term, err := strconv.ParseUint(digits, 10, 64)
	return term, ours && err == nil && streamName(term) == stream
}

// streamSubject is all that a term's stream keeps.
func streamSubject(term uint64) string { return fmt.Sprintf("offer.%d.>", term) }

func offerSubject(term uint64, l bus.Lane) string {
	return fmt.Sprintf("offer.%d.%s.%s", term, token(string(l.Tenant)), token(l.App))
}

// consumerName names the durable consumer of an app; @ is in no token.
func consumerName(tenant jobs.Tenant, app string) string {
	return token(app) + "@" + token(string(tenant))
}

// pullSubject is where a worker asks for offers.
func pullSubject(stream string, l bus.Lane) string {
	return "$JS.API.CONSUMER.MSG.NEXT." + stream + "." + consumerName(l.Tenant, l.App)
}

func handSubject(l bus.Lane) string {
	name, start := bus.CutWorker(l.Worker)
	return "to." + token(string(l.Tenant)) + "." + token(l.App) + "." + token(name) + "." + token(start)
}

// principalTokens are the four tokens that say who speaks.
func principalTokens(p bus.Principal) string {
	return token(string(p.Tenant)) + "." + token(string(p.Role)) + "." + token(p.Name) + "." + token(p.App)
}

func callSubject(p bus.Principal, service string) string {
	return "call." + principalTokens(p) + "." + token(service)
}

// serveSubject is what p answers: nodes answer all tenants, others their own.
func serveSubject(p bus.Principal, service string) string {
	tenant := token(string(p.Tenant))
	if p.Role == bus.Node {
		tenant = "*"
	}
	return "call." + tenant + ".*.*.*." + token(service)
}

// callerOf is who made a call.
func callerOf(subject string) (bus.Principal, bool) {
	parts := strings.Split(subject, ".")
	if len(parts) != 6 {
		return bus.Principal{}, false
	}
	return principalOf(parts[1:5])
}

func principalOf(tokens []string) (p bus.Principal, ok bool) {
	var said [4]string
	for i, t := range tokens {
		if said[i], ok = name(t); !ok {
			return bus.Principal{}, false
		}
	}
	return bus.Principal{Tenant: jobs.Tenant(said[0]), Role: bus.Role(said[1]), Name: said[2], App: said[3]}, true
}

func signalSubject(s bus.Signal) string {
	return "signal." + token(string(s.Tenant)) + "." + token(string(s.Topic)) + "." + token(s.To) + "." + principalTokens(s.From)
}

// listenSubjects are what one hears who listens to a topic: what is for him and what is for all.
func listenSubjects(tenant jobs.Tenant, topic bus.Topic, to string) []string {
	t := token(string(tenant))
	if tenant == "*" {
		t = "*"
	}
	stem := "signal." + t + "." + token(string(topic)) + "."
	if to == "" {
		return []string{stem + "*.*.*.*.*"}
	}
	return []string{stem + none + ".*.*.*.*", stem + token(to) + ".*.*.*.*"}
}

// signalOf is what a signal's subject says.
func signalOf(subject string) (s bus.Signal, ok bool) {
	parts := strings.Split(subject, ".")
	if len(parts) != 8 {
		return s, false
	}
	var said [3]string
	for i, t := range parts[1:4] {
		if said[i], ok = name(t); !ok {
			return s, false
		}
	}
	s = bus.Signal{Tenant: jobs.Tenant(said[0]), Topic: bus.Topic(said[1]), To: said[2]}
	s.From, ok = principalOf(parts[4:8])
	return s, ok
}

// inboxPrefix is where p gets answers: a place that no other may listen to.
func inboxPrefix(p bus.Principal) string { return "inbox." + principalTokens(p) }

package natsbus

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/jobs"
)

// The subjects. <...> is one token, written by [token]: names never enter a subject unescaped. self stands for the four
// tokens <tenant>.<role>.<name>.<app> of a principal, address for <tenant>.<app>.<name>.<start> of a worker.
//
//	subject                                 published by     subscribed to by
//	to.address                              nodes            the worker (pushes, requests)
//	answer.address.<connection>.<random>    the worker       nodes (answers to pushes)
//	call.self.<service>                     the principal    nodes (calls, requests)
//	inbox.self.<connection>.<random>        nodes            the principal (answers to its calls)
//	signal.<tenant>.<topic>.<to>.self       the principal    its tenant and nodes, by topic
//
// A server's permissions enforce this table (see [Permissions]), which has three consequences:
//
//   - The subject identifies the sender, and its app, on each of several servers.
//   - No principal can publish where another awaits an answer: what a worker may answer to nodes has a root of its own
//     (answer), all other answers go to inboxes, in which nodes alone may publish.
//   - No permission covers the reply subject of a request, to which the receiver of the request publishes with its own
//     rights. So receivers check it: nodes answer a call in the caller's inbox only, workers answer on their own
//     answer subjects only. JetStream checks no reply subject, so only nodes may use it, where a server has it. Reply
//     subjects end in a random token of 130 bits that is used once.
const (
	pushRoot   = "to"
	answerRoot = "answer"
	callRoot   = "call"
	inboxRoot  = "inbox"
	signalRoot = "signal"
)

// group is the queue group of all that serve or accept: one of several gets each message.
const group = "carillon"

// none is the token of the empty name: it is no name's token, since = is always followed by two digits.
const none = "=none"

// token writes a name as one token of a subject. Letters, digits, - and _ stand for themselves, any other byte is
// =XX, as dots are in billing=2Eeu. It is reversed by [name].
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

// isPlain reports whether all of s stands for itself.
func isPlain(s string) bool {
	for i := range len(s) {
		c := s[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_') {
			return false
		}
	}
	return true
}

// name is the reverse of [token]; false means that token never wrote this.
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

// addressTokens are the four tokens that name a worker.
func addressTokens(a bus.Address) string {
	name, start := bus.CutWorker(a.Worker)
	return token(string(a.Tenant)) + "." + token(a.App) + "." + token(name) + "." + token(start)
}

func pushSubject(to bus.Address) string { return pushRoot + "." + addressTokens(to) }

// answerPrefix is where a worker answers pushes.
func answerPrefix(at bus.Address) string { return answerRoot + "." + addressTokens(at) }

// answersTo are all workers' answers to pushes of one connection.
func answersTo(connection string) string { return answerRoot + ".*.*.*.*." + connection + ".*" }

// principalTokens are the four tokens that identify the sender.
func principalTokens(p bus.Principal) string {
	return token(string(p.Tenant)) + "." + token(string(p.Role)) + "." + token(p.Name) + "." + token(p.App)
}

func callSubject(p bus.Principal, service string) string {
	return callRoot + "." + principalTokens(p) + "." + token(service)
}

// serveSubject is all calls of a service, of all tenants.
func serveSubject(service string) string { return callRoot + ".*.*.*.*." + token(service) }

// callerOf returns the principal that made a call.
func callerOf(subject string) (bus.Principal, bool) {
	parts := strings.Split(subject, ".")
	if len(parts) != 6 || parts[0] != callRoot {
		return bus.Principal{}, false
	}
	return principalOf(parts[1:5])
}

func principalOf(tokens []string) (p bus.Principal, ok bool) {
	var names [4]string
	for i, t := range tokens {
		if names[i], ok = name(t); !ok {
			return bus.Principal{}, false
		}
	}
	return bus.Principal{Tenant: jobs.Tenant(names[0]), Role: bus.Role(names[1]), Name: names[2], App: names[3]}, true
}

func signalSubject(s bus.Signal) string {
	return signalRoot + "." + token(string(s.Tenant)) + "." + token(string(s.Topic)) + "." + token(s.To) + "." + principalTokens(s.From)
}

// listenSubjects are the subjects of a listener to a topic: those to it and those to all.
func listenSubjects(tenant jobs.Tenant, topic bus.Topic, to string) []string {
	t := token(string(tenant))
	if tenant == "*" {
		t = "*"
	}
	stem := signalRoot + "." + t + "." + token(string(topic)) + "."
	if to == "" {
		return []string{stem + "*.*.*.*.*"}
	}
	return []string{stem + none + ".*.*.*.*", stem + token(to) + ".*.*.*.*"}
}

// signalOf parses a signal's subject.
func signalOf(subject string) (s bus.Signal, ok bool) {
	parts := strings.Split(subject, ".")
	if len(parts) != 8 || parts[0] != signalRoot {
		return s, false
	}
	var names [3]string
	for i, t := range parts[1:4] {
		if names[i], ok = name(t); !ok {
			return s, false
		}
	}
	s = bus.Signal{Tenant: jobs.Tenant(names[0]), Topic: bus.Topic(names[1]), To: names[2]}
	s.From, ok = principalOf(parts[4:8])
	return s, ok
}

// inboxPrefix is where p gets answers: only p may subscribe there, and only nodes may publish.
func inboxPrefix(p bus.Principal) string { return inboxRoot + "." + principalTokens(p) }

package natsbus

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/jobs"
)

// The subjects. <...> is one token, written by [token]: names never enter a subject unescaped. self stands for the four
// tokens <tenant>.<role>.<name>.<app> of a principal, lane for <tenant>.<app>.<name>.<start> of a worker.
//
//	subject                                                published by        subscribed to by
//	offer.<term>.<tenant>.<app>                            nodes               nodes (the shared lane of an app, a stream)
//	to.lane                                                nodes               the worker (its personal lane, requests)
//	answer.lane.<connection>.<random>                      the worker          nodes (answers to those requests)
//	call.self.<service>                                    the principal       nodes (calls, requests)
//	inbox.self.<connection>.<random>                       nodes               the principal (answers to its calls, offers it pulls)
//	signal.<tenant>.<topic>.<to>.self                      the principal       its tenant and nodes, by topic
//	$JS.API.CONSUMER.MSG.NEXT.<stream>.<app>@<tenant>      the app's workers   JetStream (pulls of offers)
//	$JS.ACK.<stream>.<app>@<tenant>.>                      the app's workers   JetStream (acknowledgements)
//
// A server's permissions enforce this table (see [Permissions]), which has three consequences:
//
//   - The subject identifies the sender, and its app, on each of several servers.
//   - No principal can publish where another awaits an answer: what a worker may answer to nodes has a root of its own
//     (answer), all other answers go to inboxes, in which nodes alone may publish.
//   - No permission covers the reply subject of a request, to which the receiver of the request publishes with its own
//     rights. So receivers check it: nodes answer a call in the caller's inbox only, workers answer on their own lane's
//     answer subjects only. JetStream does not check it: a principal that may pull can have the server publish the
//     app's offers, statuses and empty messages on any subject. Therefore reply subjects end in a random token of 130
//     bits that is used once, a call without a reply subject in its caller's inbox is dropped, and so is a signal that
//     has headers, a reply subject, or no data.
//
// The term is in the subject of offers so that two leaders never share a stream, and the new leader's stream is ready
// before the old one is deleted.
const (
	offerRoot  = "offer"
	laneRoot   = "to"
	answerRoot = "answer"
	callRoot   = "call"
	inboxRoot  = "inbox"
	signalRoot = "signal"
	pullRoot   = "$JS.API.CONSUMER.MSG.NEXT"
	ackRoot    = "$JS.ACK"
)

// streamPrefix begins the name of a term's stream. The term follows.
const streamPrefix = "CARILLON_OFFERS_"

// group is the queue group of all that serve or receive: one of several gets each message.
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

func streamName(term uint64) string { return streamPrefix + strconv.FormatUint(term, 10) }

// termOf is the term of a stream of ours; false means that it is not one.
func termOf(stream string) (uint64, bool) {
	digits, ours := strings.CutPrefix(stream, streamPrefix)
	term, err := strconv.ParseUint(digits, 10, 64)
	return term, ours && err == nil && streamName(term) == stream
}

// streamSubject is all that a term's stream keeps.
func streamSubject(term uint64) string { return fmt.Sprintf("%s.%d.>", offerRoot, term) }

func offerSubject(term uint64, l bus.Lane) string {
	return fmt.Sprintf("%s.%d.%s.%s", offerRoot, term, token(string(l.Tenant)), token(l.App))
}

// consumerName returns the durable consumer of an app; @ is in no token.
func consumerName(tenant jobs.Tenant, app string) string {
	return token(app) + "@" + token(string(tenant))
}

// pullSubject is where a worker asks for offers.
func pullSubject(stream string, l bus.Lane) string {
	return pullRoot + "." + stream + "." + consumerName(l.Tenant, l.App)
}

// laneTokens are the four tokens that name a worker's personal lane.
func laneTokens(l bus.Lane) string {
	name, start := bus.CutWorker(l.Worker)
	return token(string(l.Tenant)) + "." + token(l.App) + "." + token(name) + "." + token(start)
}

func handSubject(l bus.Lane) string { return laneRoot + "." + laneTokens(l) }

// answerPrefix is where the worker of a lane answers its personal lists.
func answerPrefix(l bus.Lane) string { return answerRoot + "." + laneTokens(l) }

// answersTo are all workers' answers to requests of one connection.
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

package auditfile

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// maxLine is the longest line in bytes: before and after of an audit have at most some 256 KiB each.
const maxLine = 4 << 20

// repeatable is how many of the last lines of a tenant may come again: exporters deliver at least once, and begin anew with
// all that the server keeps if a sink was removed from the configuration and added again.
const repeatable = kernel.MaxAuditsWaiting

// Verifier checks lines of the audit, in order, over any number of files. Its zero value is ready.
type Verifier struct {
	chains map[jobs.Tenant]*Chain
	heads  map[string]*Head
	err    error   // of the first wrong line
	broken *broken // what a later line may still explain
	// Syslog has the lines be a syslog server's: with its text before each.
	Syslog bool
}

// Chain is what was verified of a tenant: all audits from First to Last.
type Chain struct {
	Tenant      jobs.Tenant
	First, Last uint64
	Hash        string // of the last, hexadecimal
	Repeats     int    // lines that came again, unchanged
	Gaps        []Gap  // confirmed ones: these audits are not in the lines
	open        []openGap
	leap        bool // a gap was the last line: the next audit continues one that is not there
	recent      map[uint64]string
	at          place // of the last
}

// Head is a hash that was looked for.
type Head struct {
	Hash   string
	Found  bool
	Tenant jobs.Tenant
	N      uint64 // number of its audit
}

// openGap is a gap that no audit has confirmed yet.
type openGap struct {
	Gap
	at place
}

type place struct {
	file string
	line int
}

func (p place) String() string { return fmt.Sprintf("%s:%d", p.file, p.line) }

// broken is a chain with a gap. If a missing line follows later, it was moved and not removed.
type broken struct {
	tenant   jobs.Tenant
	from, to uint64
	at       place
	after    place
}

// Want looks for a hash in the lines that follow. It returns an error if the text is no hash.
func (v *Verifier) Want(hash string) error {
	if b, err := hex.DecodeString(hash); err != nil || len(b) != 32 {
		return kernel.Invalid("invalid head %.80q: want 64 hexadecimal digits, as \"carillon audit head\" prints them", hash)
	}
	if v.heads == nil {
		v.heads = map[string]*Head{}
	}
	v.heads[hash] = &Head{Hash: hash}
	return nil
}

// Read checks the lines of a file. It returns errors of r only; Done returns those of lines.
func (v *Verifier) Read(name string, r io.Reader) error {
	lines := bufio.NewReaderSize(r, 64<<10)
	for n := 1; ; n++ {
		text, err := readLine(lines)
		at := place{name, n}
		switch {
		case errors.Is(err, errLong):
			v.wrong(fmt.Errorf("%s: the line has more than %d bytes", at, maxLine))
			return nil
		case err != nil && !errors.Is(err, io.EOF):
			return err
		case err != nil && len(text) > 0:
			v.wrong(fmt.Errorf("%s: the line is cut off: it has no line feed", at))
			return nil
		case err != nil:
			return nil
		}
		v.line(at, text[:len(text)-1])
	}
}

var errLong = errors.New("line too long")

// readLine is ReadBytes with a limit.
func readLine(r *bufio.Reader) (text []byte, err error) {
	for {
		part, err := r.ReadSlice('\n')
		if text = append(text, part...); len(text) > maxLine {
			return nil, errLong
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return text, err
		}
	}
}

func (v *Verifier) wrong(err error) {
	if v.err == nil {
		v.err = err
	}
}

// syslogMessage begins the message in a line of a syslog server.
var syslogMessage = []byte(`{"v":1,"tenant":`)

func (v *Verifier) line(at place, text []byte) {
	if i := bytes.Index(text, syslogMessage); v.Syslog && i > 0 {
		text = text[i:]
	}
	if tenant, g, ok := parseGap(text); ok {
		v.gap(at, tenant, g)
		return
	}
	a, err := Parse(text)
	if err != nil {
		if v.broken == nil {
			v.wrong(fmt.Errorf("%s: changed: %w", at, err))
		}
		return
	}
	if !bytes.Equal(a.Sum(), a.Hash) {
		if v.broken == nil {
			v.wrong(fmt.Errorf("%s: changed: audit %d of tenant %s does not have the hash in the line", at, a.N, a.Tenant))
		}
		return
	}
	if v.err != nil {
		v.explain(at, a)
		return
	}
	hash := hex.EncodeToString(a.Hash)
	if h := v.heads[hash]; h != nil {
		h.Found, h.Tenant, h.N = true, a.Tenant, a.N
	}
	if v.chains == nil {
		v.chains = map[jobs.Tenant]*Chain{}
	}
	c := v.chains[a.Tenant]
	if c == nil {
		if (a.N == 1) != (len(a.Prev) == 0) || a.N == 0 {
			v.wrong(fmt.Errorf("%s: changed: audit %d has prev %x: only the first, number 1, has none", at, a.N, a.Prev))
			return
		}
		v.chains[a.Tenant] = &Chain{Tenant: a.Tenant, First: a.N, Last: a.N, Hash: hash, at: at, recent: map[uint64]string{a.N: hash}}
		return
	}
	prev := hex.EncodeToString(a.Prev)
	switch {
	case a.N <= c.Last && c.recent[a.N] == hash:
		c.Repeats++
	case a.N < c.First:
		v.wrong(fmt.Errorf("%s: reordered: audit %d of tenant %s follows audit %d: give the files oldest first", at, a.N, a.Tenant, c.Last))
	case a.N <= c.Last:
		v.wrong(fmt.Errorf("%s: inserted: audit %d of tenant %s is there already, with another content or more than %d lines before", at, a.N, a.Tenant, repeatable))
	case a.N > c.Last+1:
		v.broken = &broken{a.Tenant, c.Last + 1, a.N - 1, at, c.at}
		v.wrong(fmt.Errorf("%s: removed: tenant %s lacks %s after %s", at, a.Tenant, span(c.Last+1, a.N-1), c.at))
	case prev != c.Hash && !c.leap:
		v.wrong(fmt.Errorf("%s: changed or inserted: audit %d of tenant %s does not continue audit %d in %s: one of the two was replaced and its hash computed anew",
			at, a.N, a.Tenant, c.Last, c.at))
	default:
		c.Last, c.Hash, c.at, c.leap = a.N, hash, at, false
		c.confirm(a)
		c.recent[a.N] = hash
		delete(c.recent, a.N-repeatable)
	}
}

// gap leaps over audits that the sink did not receive. Done refuses it unless an audit confirms it.
func (v *Verifier) gap(at place, tenant jobs.Tenant, g Gap) {
	if v.err != nil {
		return
	}
	c := v.chains[tenant]
	switch {
	case c == nil: // the lines begin after it
	case slices.ContainsFunc(c.Gaps, func(o Gap) bool { return o == g }), g.To <= c.Last && !c.leap:
		c.Repeats++
	case g.From > c.Last+1:
		v.broken = &broken{tenant, c.Last + 1, g.From - 1, at, c.at}
		v.wrong(fmt.Errorf("%s: removed: tenant %s lacks %s before the gap", at, tenant, span(c.Last+1, g.From-1)))
	default: // written again, it may reach further
		c.open = append(c.open, openGap{g, at})
		c.Last, c.Hash, c.at, c.leap = max(c.Last, g.To), "", at, true
	}
}

// confirm closes the gaps that an audit is about. It may reach further than the line: the leader that wrote the line
// died, and the next one found more missing.
func (c *Chain) confirm(a *kernel.Audit) {
	sink, about := strings.CutPrefix(a.Target, kernel.AuditSinkTarget(""))
	var is kernel.AuditGap
	if len(c.open) == 0 || !about || a.Verb != kernel.VerbExported.String() || json.Unmarshal(a.After, &is) != nil {
		return
	}
	before := len(c.open)
	c.open = slices.DeleteFunc(c.open, func(g openGap) bool { return g.Sink == sink && g.From >= is.From && g.To <= is.To })
	if len(c.open) < before {
		c.Gaps = append(c.Gaps, Gap{sink, is.From, is.To})
	}
}

// explain looks for lines that are missing before: if they follow, the order was changed.
func (v *Verifier) explain(at place, a *kernel.Audit) {
	if b := v.broken; b != nil && a.Tenant == b.tenant && a.N >= b.from && a.N <= b.to {
		v.err = fmt.Errorf("%s: reordered: audit %d of tenant %s belongs after %s and before %s", at, a.N, a.Tenant, b.after, b.at)
		v.broken = nil
	}
}

func span(from, to uint64) string {
	if from == to {
		return fmt.Sprintf("audit %d", from)
	}
	return fmt.Sprintf("audits %d to %d", from, to)
}

// Done returns what was verified, by tenant, or the first wrong line. A head that is in no line is an error: lines are
// missing at the end, or the files are those of another store.
func (v *Verifier) Done() ([]*Chain, []*Head, error) {
	chains := slices.SortedFunc(maps.Values(v.chains), func(a, b *Chain) int { return bytes.Compare([]byte(a.Tenant), []byte(b.Tenant)) })
	heads := slices.SortedFunc(maps.Values(v.heads), func(a, b *Head) int { return bytes.Compare([]byte(a.Hash), []byte(b.Hash)) })
	err := v.err
	for _, c := range chains {
		if err == nil && len(c.open) > 0 {
			g := c.open[0]
			err = fmt.Errorf("%s: the gap of %s of tenant %s is confirmed by no later audit: the lines were removed, or the audit \"exported\" is not in the lines yet",
				g.at, span(g.From, g.To), c.Tenant)
		}
	}
	for _, h := range heads {
		if err == nil && !h.Found {
			err = fmt.Errorf("no line has the hash %s: lines are missing at the end, or these are not the lines of that server", h.Hash)
		}
	}
	return chains, heads, err
}

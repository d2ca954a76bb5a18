package metastore

import (
	"cmp"
	"encoding/binary"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// Compare is the order of lines: by attempt, then by sequence.
func (p LogPosition) Compare(o LogPosition) int {
	return cmp.Or(cmp.Compare(p.Attempt, o.Attempt), cmp.Compare(p.Sequence, o.Sequence))
}

// Size is what a line counts against MaxLog.
func (l *LogLine) Size() int { return len(l.Text) + len(l.Level) + 32 }

// Cut is the last line of an attempt that wrote too much, in the place of the first one that is dropped.
func (l LogLine) Cut() LogLine {
	l.Level, l.Text = "WARN", "the log of this attempt ends here: it has reached its limit of 1 MiB"
	return l
}

// IsCut reports whether a line was made by Cut.
func (l *LogLine) IsCut() bool {
	cut := LogLine{}.Cut()
	return l.Level == cut.Level && l.Text == cut.Text
}

// Append appends the line to b in a lossless form, unlike JSON, whose strings are valid UTF-8.
func (l *LogLine) Append(b []byte) []byte {
	b = appendText(b, string(l.Tenant))
	b = append(b, l.Run[:]...)
	b = binary.AppendUvarint(b, uint64(l.Attempt))
	b = binary.AppendUvarint(b, l.Sequence)
	b = binary.AppendVarint(b, l.At.UnixNano())
	return appendText(appendText(b, l.Level), l.Text)
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// DecodeLogLine reads what Append wrote, and returns the rest.
func DecodeLogLine(b []byte) (l LogLine, rest []byte, err error) {
	bad := false
	number := func() uint64 {
		n, size := binary.Uvarint(b)
		if size <= 0 {
			bad = true
			return 0
		}
		b = b[size:]
		return n
	}
	text := func() string {
		n := number()
		if bad || n > uint64(len(b)) {
			bad = true
			return ""
		}
		s := string(b[:n])
		b = b[n:]
		return s
	}
	l.Tenant = jobs.Tenant(text())
	if bad || len(b) < len(l.Run) {
		return l, nil, kernel.Invalid("truncated log line")
	}
	b = b[copy(l.Run[:], b):]
	l.Attempt, l.Sequence = uint32(number()), number()
	at, size := binary.Varint(b)
	if bad || size <= 0 {
		return l, nil, kernel.Invalid("truncated log line")
	}
	b = b[size:]
	l.At = time.Unix(0, at).UTC()
	if l.Level, l.Text = text(), text(); bad {
		return l, nil, kernel.Invalid("truncated log line")
	}
	return l, b, nil
}

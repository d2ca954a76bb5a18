package metastore

import "cmp"

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

package schedule

import "fmt"

// Gap is the policy for a fixed-time match whose wall time does not exist because clocks were set forward.
type Gap uint8

const (
	// GapAfter fires once at the first instant after the gap. The default.
	GapAfter Gap = iota
	// GapBefore fires once in the last whole second before the gap.
	GapBefore
	// GapSkip does not fire.
	GapSkip
)

// Overlap is the policy for a fixed-time match whose wall time happens twice because clocks were set back.
type Overlap uint8

const (
	// OverlapFirst fires on the first pass only. The default.
	OverlapFirst Overlap = iota
	// OverlapSecond fires on the second pass only.
	OverlapSecond
	// OverlapBoth fires on both.
	OverlapBoth
)

var (
	gapNames     = [...]string{GapAfter: "after", GapBefore: "before", GapSkip: "skip"}
	overlapNames = [...]string{OverlapFirst: "first", OverlapSecond: "second", OverlapBoth: "both"}
)

// String returns the name in specifications: "after", "before" or "skip".
func (g Gap) String() string { return nameOf(gapNames[:], int(g), "Gap") }

// String returns the name in specifications: "first", "second" or "both".
func (o Overlap) String() string { return nameOf(overlapNames[:], int(o), "Overlap") }

// MarshalText returns the name, so that JSON has "after" and not 0.
func (g Gap) MarshalText() ([]byte, error) {
	if int(g) >= len(gapNames) {
		return nil, refuse("gap", 0, "unknown policy %d", g)
	}
	return []byte(g.String()), nil
}

// MarshalText returns the name, so that JSON has "first" and not 0.
func (o Overlap) MarshalText() ([]byte, error) {
	if int(o) >= len(overlapNames) {
		return nil, refuse("overlap", 0, "unknown policy %d", o)
	}
	return []byte(o.String()), nil
}

// UnmarshalText reads the name; empty means the default.
func (g *Gap) UnmarshalText(text []byte) error {
	i, err := indexOf(gapNames[:], "gap", string(text))
	*g = Gap(i)
	return err
}

// UnmarshalText reads the name; empty means the default.
func (o *Overlap) UnmarshalText(text []byte) error {
	i, err := indexOf(overlapNames[:], "overlap", string(text))
	*o = Overlap(i)
	return err
}

func nameOf(names []string, i int, kind string) string {
	if i < len(names) {
		return names[i]
	}
	return fmt.Sprintf("%s(%d)", kind, i)
}

func indexOf(names []string, field, text string) (int, error) {
	if text == "" {
		return 0, nil
	}
	for i, name := range names {
		if name == text {
			return i, nil
		}
	}
	return 0, refuse(field, 0, "invalid policy %s: want one of %v", quote(text), names)
}

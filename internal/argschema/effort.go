package argschema

import (
	"encoding/json"
	"math"
	"regexp/syntax"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
)

// A schema comes from any user who registers a job, and is evaluated in the server that all share. A schema that refers
// to itself makes the library recurse until the program dies; one whose parts refer to two others each, or with a
// pattern that does, takes unbounded time.

const (
	// maxParts is the most parts that a value is checked against, references counted each time.
	maxParts = 2_000
	// maxEffort is the most parts times bytes of arguments: a second's work, far above real schemas.
	maxEffort = 32 << 20
	// endless exceeds every limit.
	endless = math.MaxInt32
)

// effort is how many parts of a schema a value may be checked against, references included; endless if they are cyclic,
// or if it cannot be computed.
func effort(s *jsonschema.Schema) int {
	text, err := json.Marshal(s) // with all names as the library understands them
	if err != nil {
		return endless
	}
	var root any
	if json.Unmarshal(text, &root) != nil {
		return endless
	}
	return (&measure{root: root, of: map[string]int{}}).node(root)
}

// measure caches the effort of references; that of one under way is endless.
type measure struct {
	root any
	of   map[string]int
	deep int
}

func (m *measure) node(v any) int {
	if m.deep++; m.deep > 1_000 {
		return endless
	}
	defer func() { m.deep-- }()
	sum := 1
	switch v := v.(type) {
	case map[string]any:
		for name, part := range v {
			if sum = min(endless, sum+m.member(name, part)); sum > maxParts {
				return endless // to measure the rest could take seconds
			}
		}
	case []any:
		for _, part := range v {
			if sum = min(endless, sum+m.node(part)); sum > maxParts {
				return endless
			}
		}
	}
	return sum
}

// member is what one keyword of a schema object adds: nothing, but for references and patterns.
func (m *measure) member(name string, v any) int {
	text, is := v.(string)
	switch {
	case is && name == "$ref":
		return m.target(text)
	case is && (name == "$dynamicRef" || name == "$recursiveRef"):
		return endless
	case is && name == "$id": // changes what references mean
		return endless
	case is && name == "pattern":
		return pattern(text)
	case is:
		return 0
	case name == "patternProperties":
		sum := 0
		if of, ok := v.(map[string]any); ok {
			for text := range of {
				if sum = min(endless, sum+pattern(text)); sum > maxParts {
					return endless
				}
			}
		}
		return min(endless, sum+m.node(v))
	}
	switch v.(type) {
	case map[string]any, []any:
		return m.node(v)
	}
	return 0
}

// target returns the effort of what a reference points at, which must be in the same document.
func (m *measure) target(ref string) int {
	if cost, known := m.of[ref]; known {
		return cost
	}
	m.of[ref] = endless
	path, here := strings.CutPrefix(ref, "#/")
	if !here || strings.ContainsAny(ref, "%~") {
		return endless
	}
	at := m.root
	for step := range strings.SplitSeq(path, "/") {
		switch v := at.(type) {
		case map[string]any:
			at = v[step]
		case []any:
			i, err := strconv.Atoi(step)
			if err != nil || i < 0 || i >= len(v) {
				return endless
			}
			at = v[i]
		}
	}
	if at == nil {
		return endless
	}
	m.of[ref] = m.node(at)
	return m.of[ref]
}

// pattern returns the effort of a regular expression: its states, of which four take as long as a part.
func pattern(text string) int {
	tree, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return endless
	}
	program, err := syntax.Compile(tree.Simplify())
	if err != nil {
		return endless
	}
	return len(program.Inst)/4 + 1
}

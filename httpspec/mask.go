package httpspec

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"slices"
	"strings"
)

// Mask hides values in texts for users: as they are, and as URLs, JSON, hex and base64 encode them. In base64 a value
// is also found beside other text, as in "user:password".
type Mask struct{ r *strings.Replacer }

// hidden replaces a value.
const hidden = "***"

// leastEncoded is the shortest encoding of a value that is searched: shorter ones occur in too many texts.
const leastEncoded = 6

// NewMask returns a mask for values.
func NewMask(values ...string) *Mask {
	var forms []string
	for _, v := range values {
		if v != "" {
			forms = append(forms, v)
			forms = append(forms, encodings(v)...)
		}
	}
	if len(forms) == 0 {
		return &Mask{}
	}
	slices.SortFunc(forms, func(a, b string) int { return len(b) - len(a) }) // the longest that fits
	pairs := make([]string, 0, 2*len(forms))
	for _, form := range forms {
		pairs = append(pairs, form, hidden)
	}
	return &Mask{strings.NewReplacer(pairs...)}
}

// encodings returns the encodings of a value.
func encodings(v string) []string {
	query, path := url.QueryEscape(v), url.PathEscape(v)
	lower := hex.EncodeToString([]byte(v))
	all := []string{query, path, smallEscapes(query), smallEscapes(path), lower, strings.ToUpper(lower)}
	for _, escapeHTML := range []bool{false, true} {
		var b strings.Builder
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(escapeHTML)
		if e.Encode(v) == nil {
			all = append(all, strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(b.String()), `"`), `"`))
		}
	}
	for _, padded := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding} {
		all = append(all, padded.EncodeToString([]byte(v)))
		raw := padded.WithPadding(base64.NoPadding)
		for before := range 3 { // bytes before the value in its group of three
			text := raw.EncodeToString(append(make([]byte, before), v...))
			known := (before + len(v)) * 8 / 6 // the bytes after the value decide the rest
			all = append(all, text[(before*8+5)/6:known])
		}
		all = append(all, raw.EncodeToString([]byte(v)))
	}
	return slices.DeleteFunc(all, func(form string) bool { return form == v || len(form) < leastEncoded })
}

// smallEscapes writes the escapes of an escaped text in lower case: %2f for %2F.
func smallEscapes(s string) string {
	b := []byte(s)
	for i := 0; i+2 < len(b); i++ {
		if b[i] == '%' {
			copy(b[i+1:i+3], strings.ToLower(string(b[i+1:i+3])))
		}
	}
	return string(b)
}

// Text returns a text without the values.
func (m *Mask) Text(s string) string {
	if m == nil || m.r == nil {
		return s
	}
	return m.r.Replace(s)
}

// Empty reports whether there is nothing to hide.
func (m *Mask) Empty() bool { return m == nil || m.r == nil }

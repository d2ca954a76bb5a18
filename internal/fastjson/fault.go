package fastjson

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode/utf8"
)

// Fault returns why b is not sound JSON of at most so many levels, or "". What is sound means the same to every reader
// and fits every store: it is one document of valid UTF-8 in which no key is repeated in its object, no text has a NUL
// or half a surrogate pair, and a float64 holds each number. Levels are counted before anything parses them.
func Fault(b []byte, levels int) string {
	if Value(b, levels) {
		return ""
	}
	if deepest := Levels(b); deepest > levels {
		return fmt.Sprintf("nested %d levels deep, at most %d are allowed", deepest, levels)
	}
	switch {
	case !utf8.Valid(b):
		return "not valid UTF-8: write bytes in hex or base64"
	case !json.Valid(b):
		return "not valid JSON"
	}
	if why := faultOfEscapes(b); why != "" {
		return why
	}
	return faultOfTokens(b)
}

// faultOfEscapes returns what is wrong with the escapes of valid JSON. A backslash begins one, outside of texts there
// are none.
func faultOfEscapes(b []byte) string {
	for p := 0; ; p++ {
		next := bytes.IndexByte(b[p:], '\\')
		if next < 0 {
			return ""
		}
		p += next
		end := escape(b, p)
		switch {
		case end >= 0:
			p = end
		case codeUnit(b, p) == 0:
			return "a text contains a NUL character: write bytes in hex or base64"
		default:
			return "a text contains half of a surrogate pair"
		}
	}
}

// faultOfTokens returns what is wrong with the keys and numbers of valid JSON.
func faultOfTokens(b []byte) string {
	var open []map[string]bool // the keys of each object so far; nil = an array
	isKey := false
	for d := decoder(b); ; {
		token, err := d.Token()
		if err != nil {
			return ""
		}
		top := len(open) - 1
		switch token := token.(type) {
		case string:
			if !isKey {
				break
			}
			if open[top][token] {
				return fmt.Sprintf("the key %.60q is repeated: send it once", token)
			}
			open[top][token], isKey = true, false
			continue
		case json.Number:
			if overflows(string(token)) {
				return fmt.Sprintf("the number %.40s exceeds 1.8e308: send it as a string", token)
			}
		case json.Delim:
			switch token {
			case '{':
				open, isKey = append(open, map[string]bool{}), true
				continue
			case '[':
				open, isKey = append(open, nil), false
				continue
			}
			open = open[:top]
			top--
		}
		isKey = top >= 0 && open[top] != nil // a value is complete
	}
}

func decoder(b []byte) *json.Decoder {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	return d
}

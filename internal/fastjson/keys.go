package fastjson

import (
	"bytes"
	"encoding/json"
)

// keys are the keys of one object so far. The first ones are compared with each other, the others looked up.
type keys struct {
	n     int
	first [8]span
	all   map[string]struct{} // once there are more, or one with an escape
}

// span is where a key stands, with its quotes.
type span struct{ begin, end int32 }

// add reports whether the key at a place is new.
func (k *keys) add(b []byte, begin, end int) bool {
	key := b[begin:end]
	if k.all == nil && k.n < len(k.first) && bytes.IndexByte(key, '\\') < 0 {
		for _, known := range k.first[:k.n] {
			if string(b[known.begin:known.end]) == string(key) {
				return false
			}
		}
		k.first[k.n] = span{int32(begin), int32(end)}
		k.n++
		return true
	}
	if k.all == nil {
		k.all = make(map[string]struct{}, 2*len(k.first))
		for _, known := range k.first[:k.n] {
			k.all[string(b[known.begin+1:known.end-1])] = struct{}{}
		}
	}
	name := unquoted(key)
	if _, known := k.all[name]; known {
		return false
	}
	k.all[name] = struct{}{}
	return true
}

// unquoted returns the text of a valid JSON text.
func unquoted(key []byte) (name string) {
	if bytes.IndexByte(key, '\\') < 0 {
		return string(key[1 : len(key)-1])
	}
	_ = json.Unmarshal(key, &name) // it is valid
	return name
}

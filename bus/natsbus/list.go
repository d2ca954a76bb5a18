package natsbus

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// A list of offers as bytes:
//
//	version   1 byte
//	keys      how many, then each: its length, its bytes     in the order in which the offers first name them
//	offers    how many, then each: id (16 bytes), attempt, and, if there are several keys, the key's place
//
// Numbers are varints, as short as can be. One list has one form: decodeList accepts only what appendList writes.
const listVersion = 1

// maxKey is the longest key, and the longest handler. Their other rules are checked by the store.
const maxKey = 200

// nameOf is an offer's entry in the table of keys: its key, and after a zero byte its handler, if that is another.
func nameOf(o bus.Offer) jobs.Key {
	if o.Handler == "" {
		return o.Key
	}
	return o.Key + "\x00" + o.Handler
}

func namesOf(name jobs.Key) (key, handler jobs.Key) {
	before, after, _ := strings.Cut(string(name), "\x00")
	return jobs.Key(before), jobs.Key(after)
}

// appendList writes a list behind b.
func appendList(b []byte, list []bus.Offer) ([]byte, error) {
	if len(list) == 0 || len(list) > bus.MaxList {
		return b, kernel.Invalid("a list of %d offers: 1 to %d are allowed", len(list), bus.MaxList)
	}
	var places [bus.MaxList]byte
	var table [bus.MaxList]jobs.Key
	keys := table[:0]
	for i, o := range list {
		name := nameOf(o)
		place := slices.Index(keys, name)
		if place < 0 {
			if len(o.Key) > maxKey || len(o.Handler) > maxKey {
				return b, kernel.Invalid("an offer's key has %d bytes and its handler %d: the limit is %d", len(o.Key), len(o.Handler), maxKey)
			}
			place = len(keys)
			keys = append(keys, name)
		}
		places[i] = byte(place)
	}
	b = append(b, listVersion)
	b = binary.AppendUvarint(b, uint64(len(keys)))
	for _, k := range keys {
		b = binary.AppendUvarint(b, uint64(len(k)))
		b = append(b, k...)
	}
	b = binary.AppendUvarint(b, uint64(len(list)))
	for i, o := range list {
		b = append(b, o.ID[:]...)
		b = binary.AppendUvarint(b, uint64(o.Attempt))
		if len(keys) > 1 {
			b = append(b, places[i])
		}
	}
	return b, nil
}

var errShort = errors.New("it ends too early")

// decodeList reads a list. It trusts nothing: bytes may come from anywhere.
func decodeList(b []byte) ([]bus.Offer, error) {
	if len(b) == 0 {
		return nil, errors.New("it is empty")
	}
	if b[0] != listVersion {
		return nil, fmt.Errorf("its version is %d: this program knows %d", b[0], listVersion)
	}
	r := reader{left: b[1:]}
	var table [bus.MaxList]jobs.Key
	keys := table[:r.number("keys", 1, bus.MaxList)]
	for i := range keys {
		k := jobs.Key(r.bytes(int(r.number("bytes of a key", 0, 2*maxKey+1))))
		if key, handler := namesOf(k); len(key) > maxKey || len(handler) > maxKey || nameOf(bus.Offer{Key: key, Handler: handler}) != k {
			r.fail(fmt.Errorf("invalid key and handler %.500q", k))
		}
		if slices.Contains(keys[:i], k) {
			r.fail(fmt.Errorf("key %q is there twice", k))
		}
		keys[i] = k
	}
	n := r.number("offers", uint64(len(keys)), bus.MaxList)
	if r.err != nil {
		return nil, r.err
	}
	list := make([]bus.Offer, n)
	named := 0 // how many keys were named so far
	for i := range list {
		o := &list[i]
		copy(o.ID[:], r.bytes(len(o.ID)))
		o.Attempt = uint32(r.number("attempt", 0, math.MaxUint32))
		place := 0
		if len(keys) > 1 {
			place = int(r.number("place of a key", 0, uint64(min(named, len(keys)-1))))
		}
		named = max(named, place+1)
		if r.err != nil {
			return nil, r.err
		}
		o.Key, o.Handler = namesOf(keys[place])
	}
	switch {
	case named != len(keys):
		return nil, fmt.Errorf("it has %d keys and uses %d", len(keys), named)
	case len(r.left) > 0:
		return nil, fmt.Errorf("%d bytes too many", len(r.left))
	}
	return list, nil
}

// reader reads until the first mistake; from there on all is zero.
type reader struct {
	left []byte
	err  error
}

func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
	r.left = nil
}

// number reads one that must lie between least and most.
func (r *reader) number(what string, least, most uint64) uint64 {
	v, n := binary.Uvarint(r.left)
	switch {
	case r.err != nil:
		return 0
	case n <= 0:
		r.fail(errShort)
		return 0
	case n > 1 && r.left[n-1] == 0:
		r.fail(fmt.Errorf("%s: the number is longer than it need be", what))
		return 0
	case v < least || v > most:
		r.fail(fmt.Errorf("%s: %d is not between %d and %d", what, v, least, most))
		return 0
	}
	r.left = r.left[n:]
	return v
}

func (r *reader) bytes(n int) []byte {
	if len(r.left) < n {
		r.fail(errShort)
		return nil
	}
	b := r.left[:n]
	r.left = r.left[n:]
	return b
}

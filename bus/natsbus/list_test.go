package natsbus

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/jobs"
)

func encoded(t testing.TB, list ...bus.Offer) []byte {
	t.Helper()
	b, err := appendList(nil, list)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

var (
	id1 = jobs.ID{0x01, 0x90, 0xa3, 0xe5, 0x7c, 0x2b, 0x7d, 0x11, 0x8f, 0x3a, 0x5d, 0x0c, 0x9b, 0xe0, 0xa0, 0x01}
	id2 = jobs.ID{15: 2}
)

// What an older program wrote, a newer one reads: these bytes never change without the version.
func TestListGolden(t *testing.T) {
	for _, c := range []struct {
		list []bus.Offer
		want string
	}{
		{[]bus.Offer{{ID: id1, Attempt: 1, Key: "k"}}, "01 01016b 01 0190a3e57c2b7d118f3a5d0c9be0a001 01"},
		{
			[]bus.Offer{{ID: id1, Attempt: 300, Key: "b"}, {ID: id2, Attempt: math.MaxUint32, Key: "a"}, {ID: id2, Key: "b"}},
			"01 02 0162 0161 03" +
				" 0190a3e57c2b7d118f3a5d0c9be0a001 ac02 00" +
				" 00000000000000000000000000000002 ffffffff0f 01" +
				" 00000000000000000000000000000002 00 00",
		},
	} {
		b := encoded(t, c.list...)
		if want := strings.ReplaceAll(c.want, " ", ""); hex.EncodeToString(b) != want {
			t.Errorf("%v\nis   %x\nnot  %s", c.list, b, want)
		}
		if back, err := decodeList(b); err != nil || !slices.Equal(back, c.list) {
			t.Errorf("%x is read as %v, %v", b, back, err)
		}
	}
}

func TestAFullListIsSmall(t *testing.T) {
	list := make([]bus.Offer, bus.MaxList)
	for i := range list {
		list[i] = bus.Offer{ID: id1, Attempt: 1, Key: "billing.charge"}
	}
	if n := len(encoded(t, list...)); n > bus.MaxList*17+20 {
		t.Errorf("%d bytes", n)
	}
}

func TestListsThatCannotBeWritten(t *testing.T) {
	for _, list := range [][]bus.Offer{nil, make([]bus.Offer, bus.MaxList+1), {{Key: jobs.Key(strings.Repeat("k", maxKey+1))}}} {
		if _, err := appendList(nil, list); !errors.Is(err, jobs.BadInput) {
			t.Errorf("%d offers: %v", len(list), err)
		}
	}
}

// nonsense are messages that no program of ours writes.
func nonsense(t testing.TB) map[string][]byte {
	good := encoded(t, bus.Offer{ID: id1, Attempt: 1, Key: "a"}, bus.Offer{ID: id2, Attempt: 2, Key: "b"})
	id := string(id1[:])
	bad := map[string][]byte{
		"empty":                 {},
		"text":                  []byte("hello"),
		"JSON":                  []byte(`{"id":"0190a3e5-7c2b-7d11-8f3a-5d0c9be0a001"}`),
		"version 0":             append([]byte{0}, good[1:]...),
		"version 999":           append([]byte{0xe7, 0x07}, good[1:]...),
		"a mebibyte of nothing": make([]byte, 1<<20),
		"a mebibyte of ones":    bytes.Repeat([]byte{1}, 1<<20),
		"too much":              append(slices.Clone(good), 0),
		"no keys":               []byte("\x01\x00\x01" + id + "\x01"),
		"no offers":             []byte("\x01\x01\x01a\x00"),
		"65 keys":               []byte("\x01\x41" + strings.Repeat("\x01a", 65)),
		"65 offers":             []byte("\x01\x01\x01a\x41" + strings.Repeat(id+"\x01", 65)),
		"a key of 201 bytes":    []byte("\x01\x01\xc9\x01" + strings.Repeat("k", 201) + "\x01" + id + "\x01"),
		"a key twice":           []byte("\x01\x02\x01a\x01a\x02" + id + "\x01\x00" + id + "\x01\x01"),
		"a key not used":        []byte("\x01\x02\x01a\x01b\x02" + id + "\x01\x00" + id + "\x01\x00"),
		"a key that is not":     []byte("\x01\x02\x01a\x01b\x02" + id + "\x01\x00" + id + "\x01\x02"),
		"keys in another order": []byte("\x01\x02\x01a\x01b\x02" + id + "\x01\x01" + id + "\x01\x00"),
		"attempt 2^32":          []byte("\x01\x01\x01a\x01" + id + "\x80\x80\x80\x80\x10"),
		"attempt 2^70":          []byte("\x01\x01\x01a\x01" + id + "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
		"a number too long":     []byte("\x01\x01\x01a\x01" + id + "\x81\x00"),
	}
	for n := range good {
		bad["cut to "+string(rune('0'+n/10))+string(rune('0'+n%10))] = good[:n]
	}
	return bad
}

func TestNonsenseIsRefused(t *testing.T) {
	for name, b := range nonsense(t) {
		if list, err := decodeList(b); err == nil {
			t.Errorf("%s is read as %v", name, list)
		}
	}
}

// One list has one form; nothing that can be sent makes the decoder stumble.
func FuzzDecodeList(f *testing.F) {
	for _, b := range nonsense(f) {
		if len(b) < 1<<10 {
			f.Add(b)
		}
	}
	f.Add(encoded(f, bus.Offer{ID: id1, Attempt: 1, Key: "a"}, bus.Offer{ID: id2, Attempt: 2, Key: ""}, bus.Offer{Key: "a"}))
	f.Fuzz(func(t *testing.T, b []byte) {
		list, err := decodeList(b)
		if err != nil {
			return
		}
		if back := encoded(t, list...); !bytes.Equal(back, b) {
			t.Fatalf("%x is read as %v, which is written as %x", b, list, back)
		}
	})
}

func BenchmarkList(b *testing.B) {
	list := make([]bus.Offer, bus.MaxList)
	for i := range list {
		list[i] = bus.Offer{ID: id1, Attempt: 1, Key: "billing.charge"}
	}
	buf := encoded(b, list...)
	b.Run("write", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			buf, _ = appendList(buf[:0], list)
		}
	})
	b.Run("read", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := decodeList(buf); err != nil {
				b.Fatal(err)
			}
		}
	})
}

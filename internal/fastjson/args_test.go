package fastjson

import (
	"encoding/json"
	"net/netip"
	"reflect"
	"testing"
	"time"
)

type word1 string

type plainArgs struct {
	Text   string `json:"text"`
	Word   word1  `json:"word,omitempty"`
	Yes    bool
	N      int           `json:"n"`
	Small  int8          `json:"small"`
	Wait   time.Duration `json:"wait"`
	U      uint          `json:"u"`
	Byte   uint8         `json:"byte"`
	Ratio  float64       `json:"ratio"`
	Less   float32       `json:"less"`
	Hidden string        `json:"-"`
	hidden string
}

// What the reader reads is what encoding/json reads.
func FuzzReadArgs(f *testing.F) {
	for _, s := range []string{
		`{}`, ` { } `, `{"text":"a"}`, `{"text":"ä\u00e4"}`, "{\"text\":\"\xff\"}", `{"Text":"a"}`, `{"TEXT":"a","text":"b"}`, `{"text":"a","text":"b"}`,
		`{"word":"w","Yes":true,"n":-5,"small":127,"wait":1000,"u":5,"byte":255,"ratio":1.5e3,"less":0.1}`, `{"Yes":false}`, `{"Yes":1}`, `{"yes":true}`,
		`{"small":128}`, `{"n":1.0}`, `{"n":01}`, `{"n":-0}`, `{"n":"1"}`, `{"n":null}`, `{"n":9223372036854775808}`, `{"u":-1}`, `{"byte":256}`,
		`{"ratio":1e999}`, `{"less":1e39}`, `{"ratio":-0.0}`, `{"-":"x"}`, `{"Hidden":"x"}`, `{"hidden":"x"}`, `{"more":1}`, `{"text":{}}`, `{"text":"a"`, `{"text":"a",}`, `{"text" : "a" , "n" : 1 } x`,
		`{"text":"a"}}`, `null`, `[]`, ``,
	} {
		f.Add([]byte(s))
	}
	reader := ReaderOf(reflect.TypeFor[plainArgs]())
	f.Fuzz(func(t *testing.T, b []byte) {
		var got, want plainArgs
		if !reader.Read(b, reflect.ValueOf(&got).Elem()) {
			return
		}
		if err := json.Unmarshal(b, &want); err != nil || got != want {
			t.Errorf("%q: %+v, want %+v, %v", b, got, want, err)
		}
	})
}

// Plain fields of every kind are read.
func TestReadArgs(t *testing.T) {
	reader := ReaderOf(reflect.TypeFor[plainArgs]())
	var got plainArgs
	const all = ` {"text":"ä","word":"w","Yes":true,"n":-5,"small":-128,"wait":1000,"u":5,"byte":255,"ratio":1.5e3,"less":0.25} `
	want := plainArgs{"ä", "w", true, -5, -128, 1000, 5, 255, 1500, 0.25, "", ""}
	if !reader.Read([]byte(all), reflect.ValueOf(&got).Elem()) || got != want {
		t.Errorf("read %+v", got)
	}
}

// Types of which the meaning of JSON is not plain have no reader.
func TestNoReader(t *testing.T) {
	for _, of := range []reflect.Type{
		reflect.TypeFor[string](), reflect.TypeFor[json.RawMessage](), reflect.TypeFor[map[string]string](), reflect.TypeFor[netip.Addr](), reflect.TypeFor[time.Time](),
		reflect.TypeFor[struct{ plainArgs }](), reflect.TypeFor[struct{ At time.Time }](), reflect.TypeFor[struct{ A netip.Addr }](), reflect.TypeFor[struct{ P *int }](),
		reflect.TypeFor[struct{ L []int }](), reflect.TypeFor[struct{ N json.Number }](), reflect.TypeFor[struct {
			N int `json:"n,string"`
		}](), reflect.TypeFor[struct {
			A int `json:"ä"`
		}](),
		reflect.StructOf([]reflect.StructField{{Name: "A", Type: reflect.TypeFor[int](), Tag: `json:"a"`}, {Name: "B", Type: reflect.TypeFor[int](), Tag: `json:"a"`}}),
	} {
		if ReaderOf(of) != nil {
			t.Errorf("%v has a reader", of)
		}
	}
}

func BenchmarkReadArgs(b *testing.B) {
	raw := []byte(`{"text":"arguments of about a hundred bytes, as everybody measures it","word":"c7","n":12345}`)
	reader := ReaderOf(reflect.TypeFor[plainArgs]())
	for name, read := range map[string]func(*plainArgs) bool{
		"reader": func(a *plainArgs) bool { return reader.Read(raw, reflect.ValueOf(a).Elem()) },
		"json":   func(a *plainArgs) bool { return json.Unmarshal(raw, a) == nil },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if !read(new(plainArgs)) {
					b.Fatal("not read")
				}
			}
		})
	}
}

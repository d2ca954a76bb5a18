package ui

import (
	"bytes"
	"regexp"

	"github.com/carillon-scheduler/carillon/internal/plain"
)

// visible makes characters of a page visible that act on the text around them, such as marks of writing direction, in
// whatever it shows. Attributes and fields keep their values: forms send them back.
func visible(page []byte) []byte {
	if plain.Seen(page) {
		return page
	}
	var out bytes.Buffer
	for len(page) > 0 {
		end := bytes.IndexByte(page, '<')
		if end < 0 {
			end = len(page)
		}
		out.WriteString(plain.Visible(string(page[:end])))
		page = page[end:]
		n := min(max(1, len(kept.Find(page))), len(page))
		out.Write(page[:n])
		page = page[n:]
	}
	return out.Bytes()
}

// kept is a tag, or an element whose text is a value or no text. The templates escape brackets in values.
var kept = regexp.MustCompile(`(?s)^<(textarea.*?</textarea|script.*?</script|style.*?</style|[^>]*)>`)

package ui

import "testing"

// What a page shows is visible; what a form sends back is as it was.
func TestVisible(t *testing.T) {
	for from, want := range map[string]string{
		"<p>pay\u202egnp</p>": `<p>pay\u202egnp</p>`,
		"a\u200bb<br>\x1b[2J": `a\u200bb<br>\x1b[2J`,
		"<p>é\n</p>":          "<p>é\n</p>",
		"<input value=\"\u202e\"><td title='\u200b'>\u200b":           "<input value=\"\u202e\"><td title='\u200b'>" + `\u200b`,
		"<textarea name=d>\u202e<i>\u202e</textarea>\u202e":           "<textarea name=d>\u202e<i>\u202e</textarea>" + `\u202e`,
		"<script>'\u202e'</script><style>\u202e</style><b>\u202e</b>": "<script>'\u202e'</script><style>\u202e</style><b>" + `\u202e` + "</b>",
		"a\u202e<": `a\u202e<`,
	} {
		if got := string(visible([]byte(from))); got != want {
			t.Errorf("%q becomes %q, want %q", from, got, want)
		}
	}
}

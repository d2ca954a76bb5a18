package ui

import "html/template"

// icons are strokes on a field of 16 by 16. The shapes of states differ, so that colour is never the only difference.
var icons = map[string]string{
	"overview":  `<path d="M2 13.500h12M3.500 11V8M6.500 11V4.500M9.500 11V7M12.500 11V2.500"/>`,
	"jobs":      `<rect x="2" y="2.500" width="12" height="4" rx="1.200"/><rect x="2" y="9.500" width="12" height="4" rx="1.200"/><path d="M4.500 4.500h.01M4.500 11.500h.01"/>`,
	"runs":      `<path d="M2.500 4h7M2.500 8h11M2.500 12h5"/><path d="m11 10.500 3 1.750-3 1.750z"/>`,
	"alarms":    `<path d="M4 11.500V7.500a4 4 0 0 1 8 0v4M2.500 11.500h11M6.500 13.800h3M8 2v1.500"/>`,
	"stats":     `<path d="M2 2.500v11h12M4.500 10.500l3-3.500 2.500 2 3.500-5"/>`,
	"forecast":  `<path d="M2.500 3.500h2M7 3.500h2M11.500 3.500h2M2.500 8h2M7 8h6.500M2.500 12.500h6.500M11.500 12.500h2" stroke-width="2"/>`,
	"calendars": `<rect x="2" y="3" width="12" height="11" rx="1.200"/><path d="M2 6.500h12M5.500 1.500v3M10.500 1.500v3M6 9l4 3M10 9l-4 3"/>`,
	"workers":   `<rect x="4.500" y="4.500" width="7" height="7" rx="1.500"/><path d="M6.500 2v2.500M9.500 2v2.500M6.500 11.500V14M9.500 11.500V14M2 6.500h2.500M2 9.500h2.500M11.500 6.500H14M11.500 9.500H14"/>`,
	"cluster":   `<circle cx="8" cy="3.500" r="1.800"/><circle cx="3.500" cy="12" r="1.800"/><circle cx="12.500" cy="12" r="1.800"/><path d="M7.200 5.200 4.300 10.400M8.800 5.200l2.900 5.200M5.300 12h5.400"/>`,
	"settings":  `<path d="M2 4.500h6M12 4.500h2M2 11.500h2M8 11.500h6"/><circle cx="10" cy="4.500" r="2"/><circle cx="6" cy="11.500" r="2"/>`,
	"access":    `<circle cx="5.500" cy="10.500" r="3"/><path d="m7.700 8.300 5.800-5.800M11 5l2 2M9 7l1.500 1.500"/>`,
	"tenants":   `<rect x="2" y="6.500" width="5" height="7.500" rx="1"/><rect x="9" y="2" width="5" height="12" rx="1"/><path d="M4.500 9h.01M4.500 11.500h.01M11.500 5h.01M11.500 8h.01M11.500 11h.01"/>`,
	"audit":     `<path d="M4 2h6l3 3v9H4z"/><path d="M6.500 7.500h4M6.500 10.500h4"/>`,
	"search":    `<circle cx="7" cy="7" r="4.500"/><path d="m10.500 10.500 3.500 3.500"/>`,
	"sun":       `<circle cx="8" cy="8" r="2.800"/><path d="M8 1.500v1.200M8 13.300v1.200M1.500 8h1.200M13.300 8h1.200M3.400 3.400l.9.9M11.700 11.700l.9.9M12.600 3.400l-.9.9M4.300 11.700l-.9.9"/>`,
	"moon":      `<path d="M13.500 9.500A5.800 5.800 0 0 1 6.500 2.500a5.800 5.800 0 1 0 7 7z"/>`,
	"system":    `<rect x="2" y="3" width="12" height="8" rx="1.200"/><path d="M6 14h4"/>`,
	"user":      `<circle cx="8" cy="5.500" r="2.700"/><path d="M3 13.800c.6-2.600 2.600-4 5-4s4.400 1.400 5 4"/>`,
	"signout":   `<path d="M9.500 2.500H3.500v11h6M7 8h7M11.500 5.500 14 8l-2.500 2.500"/>`,
	"play":      `<path d="m5 3 8 5-8 5z"/>`,
	"pause":     `<path d="M5.500 3.500v9M10.500 3.500v9"/>`,
	"edit":      `<path d="m3 10.500-.5 3 3-.5 7.500-7.500-2.500-2.500zM9 4.500 11.500 7"/>`,
	"trash":     `<path d="M2.500 4.500h11M6 4.500v-2h4v2M4 4.500l.7 9h6.600l.7-9"/>`,
	"more":      `<path d="M3 8h.01M8 8h.01M13 8h.01" stroke-width="2.400"/>`,
	"warning":   `<path d="M8 2 14.500 13.500h-13zM8 6.500v3M8 11.700h.01"/>`,
	"info":      `<circle cx="8" cy="8" r="6"/><path d="M8 7.500v3.500M8 5h.01"/>`,
	"check":     `<path d="m3 8.500 3.500 3.500L13 4.500"/>`,
	"copy":      `<rect x="5.500" y="5.500" width="8" height="8" rx="1.500"/><path d="M10.500 3V2.500h-8v8H3"/>`,
	"clock":     `<circle cx="8" cy="8" r="6"/><path d="M8 4.500V8l2.500 1.500"/>`,
	"tag":       `<path d="M2.500 2.500h5l6 6-5 5-6-6zM5.500 5.500h.01"/>`,
	"right":     `<path d="m6 3.500 4.500 4.500L6 12.500"/>`,
	"left":      `<path d="M10 3.500 5.500 8l4.500 4.500"/>`,

	"scheduled":  `<circle cx="8" cy="8" r="5.800"/><path d="M8 4.800V8l2.300 1.400"/>`,
	"enqueued":   `<path d="M3 4.500h10M3 8h10M3 11.500h6"/>`,
	"processing": `<path d="m5 3.200 7.500 4.800L5 12.800z" fill="currentColor"/>`,
	"succeeded":  `<path d="m3 8.500 3.500 3.500L13 4.500"/>`,
	"failed":     `<path d="M13 8a5 5 0 1 1-1.600-3.700M13.200 2v3h-3"/>`,
	"terminated": `<path d="m4 4 8 8M12 4l-8 8"/>`,
	"cancelled":  `<circle cx="8" cy="8" r="5.800"/><path d="m4 12 8-8"/>`,
	"skipped":    `<path d="M2.500 10c1-4 5.500-6 9.500-2.500M12.500 3.800v4h-4"/>`,
}

// icon returns a picture that screen readers ignore: text is beside it, or hidden there.
func icon(name string) template.HTML {
	return template.HTML(`<svg class="icon" viewBox="0 0 16 16" aria-hidden="true">` + icons[name] + `</svg>`) //nolint:gosec // only from the table above
}

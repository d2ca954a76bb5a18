// Package static has the style sheet, scripts and icon of the pages. It is not promised to other modules.
//
// It is a package of its own for pages outside package ui, which need the style sheet and nothing else.
package static

import "embed"

// Files are the files, without a folder.
//
//go:embed *.css *.js *.svg
var Files embed.FS

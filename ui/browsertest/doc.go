// Package browsertest drives the pages in a real browser: Debian's Chromium, headless, on a scheduler with real jobs.
//
// It is a module of its own, so that what drives the browser never reaches those who import Carillon.
//
// Where to start: house_test.go (the scheduler and its jobs) and tab_test.go (the browser, and what no page may do:
// complain on the console, break its own policy, ask anybody but its own server, open a dialog). walk_test.go looks
// at every page; action_test.go presses the buttons; story_test.go is a newcomer's first minute, with the clicks
// counted; picture_test.go makes the pictures in docs.
//
// Sharp edges: without chromium on the PATH the tests are skipped, but with CI=true they fail.
package browsertest

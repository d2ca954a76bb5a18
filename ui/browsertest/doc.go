// Package browsertest drives the pages in a real browser: Debian's Chromium, headless, on a scheduler with real jobs.
//
// It is a module of its own, so that what drives the browser never reaches those who import Carillon.
//
// Where to start: house_test.go (the scheduler and its jobs) and tab_test.go (the browser, and what no page may do).
// walk_test.go looks at every page; action_test.go presses the buttons; job_test.go counts the clicks of a first visit;
// picture_test.go makes the pictures in docs.
//
// The suite fails on errors on the console, policy violations, requests to other servers, dialogs, content that
// overflows its window, text of too little contrast, and controls without a name.
//
// Sharp edges: without chromium on the PATH the tests are skipped, but with CI=true they fail.
package browsertest

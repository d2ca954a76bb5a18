// Package browsertest drives the pages in a real browser: Debian's Chromium, headless, on a scheduler with real jobs.
//
// It is a module of its own, so that what drives the browser never reaches those who import Carillon.
//
// Where to start: fixture_test.go (the scheduler and its jobs) and tab_test.go (the browser, and what no page may do).
// walk_test.go looks at every page; action_test.go presses the buttons; job_test.go counts the clicks of a first visit;
// furnished_test.go has a scheduler with something on each page, for axe_test.go (the rules of axe-core);
// picture_test.go makes the pictures in docs.
//
// The suite fails on errors on the console, policy violations, requests to other servers, dialogs, content that
// overflows its window, text of too little contrast, controls without a name, and what WCAG 2.2 AA forbids, as far as
// axe-core knows.
//
// Sharp edges: without chromium on the PATH the tests are skipped, but with CI=true they fail.
package browsertest

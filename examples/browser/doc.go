// Package browser tests the example programs in a real browser, as a person uses them: with a double
// click, the back button, two tabs, a train in a tunnel.
//
// The tests need Chromium (scripts/backends installs it where it can). Without it they are skipped, or
// fail if IDEM_REQUIRE_BACKENDS=1. They take the first of the programs, or those that
// IDEM_BROWSER_PROGRAMS names ("gin echo echo5 fiber fiber3 nethttp").
package browser

// Package browser opens pages of kubectl druid ui in a headless Chromium, and reads them as people do: by text and role.
//
// A Tab keeps what must not happen on a page: errors in the console, what the Content-Security-Policy refuses, and requests to another server.
// The test needs Debian's package chromium-headless-shell. Chromium finds no host but this one. Only tests import this package.
package browser

// Package ui tests the web page of kubectl druid ui in a headless Chromium: what it says, its roles, its contrast, its width, the keyboard,
// and that it follows changes. test/ui/browser has the browser.
package ui

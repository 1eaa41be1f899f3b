// Package points holds which crash point is passed in which scenario, and its test holds that every call of druid and the
// agent that changes something outside of the process stands between two points. The scenarios themselves are run by
// test/crash and druid's own tests.
//
// It must never list a point that no scenario passes: a scenario fails whose point did not end the process.
package points

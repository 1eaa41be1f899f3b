package config

import "testing"

// A configuration file that is accepted is written and read again as the same one.
func FuzzReloadable(f *testing.F) {
	valid, err := DefaultReloadable().YAML()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(valid)
	f.Add([]byte("logLevel: debug\nrenewInterval: 5s\nleaseDuration: 15s\nbackup: {store: {kind: s3}}\n"))
	f.Add([]byte("defragmentation: {schedule: '0 3 * * SUN', timeZone: Europe/Berlin, window: 2h}\n"))
	f.Add([]byte("{"))
	f.Fuzz(func(t *testing.T, content []byte) {
		read, err := ParseReloadable(content)
		if err != nil {
			return
		}
		written, err := read.YAML()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ParseReloadable(written); err != nil {
			t.Errorf("%q is accepted, and not what it is written as, %q: %v", content, written, err)
		}
	})
}

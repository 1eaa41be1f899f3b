package leases

import (
	"testing"
	"time"
)

func TestFsyncReadsBackAndNothingElseIsRead(t *testing.T) {
	for text, want := range map[string]Fsync{
		"OK p99=4ms":           {SpeedOK, 4 * time.Millisecond},
		"Slow p99=128ms":       {SpeedSlow, 128 * time.Millisecond},
		"VerySlow p99=8.192s":  {SpeedVerySlow, 8192 * time.Millisecond},
		"":                     {},
		"OK":                   {Speed: SpeedOK},
		"VerySlow":             {Speed: SpeedVerySlow},
		"Fast":                 {},
		"OK p99=":              {},
		"OK p99=-4ms":          {},
		"OK p99=0s":            {},
		"ok p99=4ms":           {},
		"Fast p99=4ms":         {},
		"VerySlow p99=a while": {},
	} {
		t.Run(text, func(t *testing.T) {
			got := ParseFsync(text)
			if got != want {
				t.Errorf("read %+v, want %+v", got, want)
			}
			if want.Known() && got.format() != text {
				t.Errorf("written as %q", got.format())
			}
		})
	}
}

// What changes with the load of the disk waits for the next renewal, so that it costs no write of its own.
func TestAnAgentRenewsNoEarlierForASlowDisk(t *testing.T) {
	before, after := Fact{Alive: true, Member: fullMember()}, Fact{Alive: true, Member: fullMember()}
	after.Member.Fsync = Fsync{SpeedVerySlow, time.Second}
	if before.urgent(after) {
		t.Error("a verdict of the disk causes a renewal")
	}
	after.Member.Alarm = "another"
	if !before.urgent(after) {
		t.Error("an alarm causes no renewal")
	}
}

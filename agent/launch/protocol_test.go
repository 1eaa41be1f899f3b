package launch

import (
	"bytes"
	"errors"
	"flag"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/etcd-druid/druid/test/machine"
)

var update = flag.Bool("update", false, "write the golden files again")

var (
	reports = []Report{
		{State: StateIdle},
		{State: StateIdle, Clean: true, LastExit: &Exit{RanFor: time.Minute}},
		{State: StateIdle, Crashes: 2, LastExit: &Exit{Code: -1, Signal: "killed", RanFor: 1500 * time.Millisecond}},
		{State: StateIdle, LastExit: &Exit{Code: -1, Message: "start etcd /usr/local/bin/etcd: permission denied"}},
		{State: StateRunning, PID: 17},
		{State: StateBlocked, Error: "lock volume /var/lib/etcd: volume is in use by another process"},
		{State: StateUnusable, Error: "volume /var/lib/etcd: read-only file system"},
		{State: StateStopping, PID: 17},
	}
	orders = []Order{
		{Kind: OrderStart, Path: "/usr/local/bin/etcd", Argv: []string{"etcd", "--name=demo-abcde"}, Env: []string{"GOMAXPROCS=2"}},
		{Kind: OrderWait, Reason: "the record cannot be read"},
		{Kind: OrderStop, Grace: 30 * time.Second, Reason: "the attempt lost its compare-and-set"},
		{Kind: OrderProceed},
	}
)

// The wire format must not change, because a running launch is older than the agent that it connects to.
func TestWireForm(t *testing.T) {
	ours, theirs := pair(t)
	golden := filepath.Join("testdata", "protocol.v1.golden")
	var wire bytes.Buffer
	for _, r := range reports {
		if err := ours.SendReport(r, nil); err != nil {
			t.Fatal(err)
		}
		wire.Write(raw(t, theirs))
	}
	if err := ours.SendReport(Report{State: StateIdle}, os.Stdin); err != nil {
		t.Fatal(err)
	}
	wire.Write(raw(t, theirs))
	for _, o := range orders {
		if err := ours.SendOrder(o); err != nil {
			t.Fatal(err)
		}
		wire.Write(raw(t, theirs))
	}
	if *update {
		if err := os.WriteFile(golden, wire.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), wire.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestMessagesArriveAsTheyWereSent(t *testing.T) {
	ours, theirs := pair(t)
	for _, want := range reports {
		if err := ours.SendReport(want, nil); err != nil {
			t.Fatal(err)
		}
		got, lock, err := theirs.ReadReport()
		want.Version = ProtocolVersion
		if diff := cmp.Diff(want, got); err != nil || lock != nil || diff != "" {
			t.Errorf("%v, %v (-want +got):\n%s", err, lock, diff)
		}
	}
	long := Order{Kind: OrderStart, Argv: []string{string(bytes.Repeat([]byte("x"), 200<<10))}}
	for _, want := range append(orders, long) {
		sent := make(chan error, 1)
		want.Version = ProtocolVersion
		go func() { sent <- ours.SendOrder(want) }()
		got, err := theirs.ReadOrder()
		if diff := cmp.Diff(want, got); errors.Join(err, <-sent) != nil || diff != "" {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
	}
}

func TestLockTravelsWithItsReport(t *testing.T) {
	ours, theirs := pair(t)
	file, err := os.CreateTemp(t.TempDir(), "lock")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteString("the one"); err != nil {
		t.Fatal(err)
	}
	// Several reports are sent before the first is read.
	for _, lock := range []*os.File{nil, file, nil} {
		if err := ours.SendReport(Report{State: StateIdle}, lock); err != nil {
			t.Fatal(err)
		}
	}
	for i, with := range []bool{false, true, false} {
		_, lock, err := theirs.ReadReport()
		if err != nil || (lock != nil) != with {
			t.Fatalf("report %d: descriptor %v, %v; want one: %v", i, lock, err, with)
		}
		if !with {
			continue
		}
		buf := make([]byte, 16)
		if n, _ := lock.ReadAt(buf, 0); string(buf[:n]) != "the one" {
			t.Errorf("the descriptor is of another file: %q", buf[:n])
		}
	}
}

func TestVersionsOneApartAreServed(t *testing.T) {
	tests := map[string]struct {
		line string
		ok   bool
	}{
		"ours":                           {`{"version":1,"kind":"proceed"}`, true},
		"the next":                       {`{"version":2,"kind":"proceed"}`, true},
		"the next, with what we lack":    {`{"version":2,"kind":"proceed","colour":"green"}`, true},
		"two ahead":                      {`{"version":3,"kind":"proceed"}`, false},
		"none":                           {`{"kind":"proceed"}`, false},
		"not JSON":                       {`proceed`, false},
		"a kind that only they know":     {`{"version":2,"kind":"dance"}`, true},
		"a longer message than is legal": {string(bytes.Repeat([]byte("x"), maxMessage+1)), false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			ours, theirs := pair(t)
			go func() { _, _ = ours.unix.Write([]byte(tc.line + "\n")) }()
			if o, err := theirs.ReadOrder(); (err == nil) != tc.ok {
				t.Errorf("%+v, %v; want it served: %v", o, err, tc.ok)
			}
		})
	}
}

// FuzzReceive checks that reading ends without a panic and without an open descriptor for any input.
func FuzzReceive(f *testing.F) {
	f.Add([]byte(`{"version":1,"kind":"stop","grace":5}` + "\n"))
	f.Add([]byte("\n\n{"))
	f.Fuzz(func(t *testing.T, in []byte) {
		ours, theirs := pair(t)
		go func() { _, _ = ours.unix.Write(in); _ = ours.Close() }()
		for {
			if _, err := theirs.ReadOrder(); err != nil {
				return
			}
		}
	})
}

// raw is the next line as it was sent.
func raw(t *testing.T, c *Conn) []byte {
	t.Helper()
	line, err := c.line()
	if err != nil {
		t.Fatal(err)
	}
	return append(bytes.Clone(line), '\n')
}

func pair(t *testing.T) (ours, theirs *Conn) {
	t.Helper()
	address := &net.UnixAddr{Name: filepath.Join(machine.OpenDir(t), "s"), Net: "unix"}
	l, err := net.ListenUnix("unix", address)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() // one connection only
	a, err := net.DialUnix("unix", nil, address)
	if err != nil {
		t.Fatal(err)
	}
	b, err := l.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs = NewConn(a), NewConn(b)
	t.Cleanup(func() { _ = ours.Close(); _ = theirs.Close() })
	return ours, theirs
}

package launch

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// ProtocolVersion of this build. Each side supports its own version and the versions directly before and after it. A
// running launch survives upgrades of the agent and is replaced only with its Pod.
const ProtocolVersion = 1

// The protocol is newline-delimited JSON over a unix socket in the emptyDir that agent and etcd share. launch dials, says
// what it is doing, and keeps the connection for as long as both live; the agent answers with orders. If the agent is
// gone, etcd runs on and launch dials again. Unknown fields are ignored, unknown states and kinds change nothing.

// State of launch in its reports.
type State string

const (
	// StateIdle: no etcd runs. launch holds the lock of the volume, sends its descriptor with this report
	// (SCM_RIGHTS), and asks what to do. The agent may read and change the volume only while it holds that descriptor.
	StateIdle State = "idle"
	// StateRunning: etcd runs as PID.
	StateRunning State = "running"
	// StateBlocked: another process holds the lock of the volume; see Error. launch keeps trying.
	StateBlocked State = "blocked"
	// StateUnusable: the volume is missing, read-only or not writable for launch. Error says which, and what to do.
	// launch keeps trying.
	StateUnusable State = "unusable"
	// StateStopping: launch received SIGTERM. It waits for OrderProceed for at most StopGrace, then stops etcd.
	StateStopping State = "stopping"
)

// StopGrace bounds how long launch waits for the agent to move leadership before it stops etcd. It is
// part of the termination grace period of the Pod, in which etcd has to stop too.
const StopGrace = 5 * time.Second

// Report is a message of launch.
type Report struct {
	Version int   `json:"version"`
	State   State `json:"state"`
	PID     int   `json:"pid,omitempty"`
	// Lock says that the lock of the volume is sent with this report.
	Lock bool `json:"lock,omitempty"`
	// LastExit is how the previous etcd of this launch exited, nil if there was none.
	LastExit *Exit `json:"lastExit,omitempty"`
	// Clean says that the last etcd on this volume, in any Pod, exited with code 0 or because of our SIGTERM. It comes
	// from the marker on the volume. Without a marker it is false.
	Clean bool `json:"clean,omitempty"`
	// Crashes counts consecutive exits that were not clean, as recorded in the marker.
	Crashes int    `json:"crashes,omitempty"`
	Error   string `json:"error,omitempty"`
}

// Exit is how an etcd process exited. Code is −1 if a signal ended it or if it could not be started.
type Exit struct {
	Code    int           `json:"code"`
	Signal  string        `json:"signal,omitempty"`
	RanFor  time.Duration `json:"ranFor"` // nanoseconds
	Message string        `json:"message,omitempty"`
}

// OrderKind is what the agent orders launch to do.
type OrderKind string

const (
	// OrderStart: run Path with Argv (Argv[0] included) and Env, and nothing else.
	OrderStart OrderKind = "start"
	// OrderWait: stay idle for Reason. Until the next order, the probe port reports alive and not ready.
	OrderWait OrderKind = "wait"
	// OrderStop: stop etcd with SIGTERM, and with SIGKILL after Grace. Then report StateIdle.
	OrderStop OrderKind = "stop"
	// OrderProceed: the response to StateStopping.
	OrderProceed OrderKind = "proceed"
)

// Order is a message of the agent.
type Order struct {
	Version int           `json:"version"`
	Kind    OrderKind     `json:"kind"`
	Path    string        `json:"path,omitempty"`
	Argv    []string      `json:"argv,omitempty"`
	Env     []string      `json:"env,omitempty"`
	Grace   time.Duration `json:"grace,omitempty"` // nanoseconds
	Reason  string        `json:"reason,omitempty"`
}

// VersionError says that the versions of the two sides are too far apart.
type VersionError struct{ Theirs int }

func (e *VersionError) Error() string {
	return fmt.Sprintf("protocol version %d is not supported by version %d: delete the Pod, so that launch and the agent have the same release",
		e.Theirs, ProtocolVersion)
}

func checkVersion(theirs int) error {
	if theirs < ProtocolVersion-1 || theirs > ProtocolVersion+1 || theirs < 1 {
		return &VersionError{Theirs: theirs}
	}
	return nil
}

// maxMessage bounds one line. The longest message is a start order: Linux itself takes 128 KiB per argument
// (MAX_ARG_STRLEN), and etcd's --initial-cluster of nine members is about 1 KiB.
const maxMessage = 1 << 20

// writeTimeout bounds one write. The peer reads continuously, so a write that blocks this long means that the peer
// hangs.
const writeTimeout = 5 * time.Second

// Conn carries messages and descriptors over a unix stream socket. One goroutine may read while others write.
type Conn struct {
	unix *net.UnixConn

	writing sync.Mutex

	// Used by the reader: bytes that are not parsed yet, and the descriptors that came with them, in order.
	pending []byte
	files   []*os.File
}

// NewConn takes ownership of c.
func NewConn(c *net.UnixConn) *Conn { return &Conn{unix: c} }

// Close ends the connection and closes descriptors that no caller took. It unblocks a reader.
func (c *Conn) Close() error { return c.unix.Close() }

// SendReport writes r, and sends lock with it if it is not nil.
func (c *Conn) SendReport(r Report, lock *os.File) error {
	r.Version, r.Lock = ProtocolVersion, lock != nil
	var rights []byte
	if lock != nil {
		rights = unix.UnixRights(int(lock.Fd()))
	}
	return c.send(r, rights)
}

// SendOrder writes o.
func (c *Conn) SendOrder(o Order) error {
	o.Version = ProtocolVersion
	return c.send(o, nil)
}

func (c *Conn) send(message any, rights []byte) error {
	line, err := json.Marshal(message)
	if err != nil {
		return fmt.Errorf("encode message: %w", err)
	}
	line = append(line, '\n')
	c.writing.Lock()
	defer c.writing.Unlock()
	if err := c.unix.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return fmt.Errorf("send message: %w", err)
	}
	// The descriptor is sent with the first byte, so it arrives before its line is complete.
	n, _, err := c.unix.WriteMsgUnix(line, rights, nil)
	if err == nil && n < len(line) {
		_, err = c.unix.Write(line[n:])
	}
	if err != nil {
		return fmt.Errorf("send message: %w", err)
	}
	return nil
}

// ReadReport blocks until the next report. The caller closes the descriptor if there is one.
func (c *Conn) ReadReport() (Report, *os.File, error) {
	var r Report
	if err := c.receive(&r, &r.Version); err != nil {
		return r, nil, err
	}
	if !r.Lock || len(c.files) == 0 {
		return r, nil, nil
	}
	lock := c.files[0]
	c.files = c.files[1:]
	return r, lock, nil
}

// ReadOrder blocks until the next order.
func (c *Conn) ReadOrder() (Order, error) {
	var o Order
	err := c.receive(&o, &o.Version)
	return o, err
}

func (c *Conn) receive(into any, version *int) error {
	line, err := c.line()
	if err == nil {
		if err = json.Unmarshal(line, into); err != nil {
			err = fmt.Errorf("decode message: %w", err)
		} else {
			err = checkVersion(*version)
		}
	}
	if err != nil {
		c.dropFiles()
	}
	return err
}

// line returns the next line and collects the descriptors that arrived with it or after it. The kernel can return a
// message together with the descriptor of the next one. So each message says whether it has a descriptor.
func (c *Conn) line() ([]byte, error) {
	buf, oob := make([]byte, 8<<10), make([]byte, unix.CmsgSpace(4*4))
	for {
		if i := bytes.IndexByte(c.pending, '\n'); i >= 0 {
			line := c.pending[:i]
			c.pending = c.pending[i+1:]
			return line, nil
		}
		if len(c.pending) > maxMessage {
			return nil, fmt.Errorf("read message: longer than %d bytes", maxMessage)
		}
		n, oobn, _, _, err := c.unix.ReadMsgUnix(buf, oob)
		if err != nil {
			return nil, fmt.Errorf("read message: %w", err)
		}
		if n == 0 && oobn == 0 {
			return nil, io.EOF
		}
		c.pending = append(bytes.Clone(c.pending), buf[:n]...)
		if err := c.takeFiles(oob[:oobn]); err != nil {
			return nil, err
		}
	}
}

func (c *Conn) takeFiles(oob []byte) error {
	if len(oob) == 0 {
		return nil
	}
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return fmt.Errorf("read descriptor: %w", err)
	}
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			return fmt.Errorf("read descriptor: %w", err)
		}
		for _, fd := range fds {
			c.files = append(c.files, os.NewFile(uintptr(fd), "volume lock"))
		}
	}
	return nil
}

func (c *Conn) dropFiles() {
	for _, f := range c.files {
		closeFile(f)
	}
	c.files = nil
}

func closeFile(f *os.File) {
	if f != nil {
		_ = f.Close() // a descriptor that was only held, never written
	}
}

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

// maxMessage bounds one line. The longest message is a start order: Linux itself takes 128 KiB per argument
// (MAX_ARG_STRLEN), and etcd's --initial-cluster of nine members is about 1 KiB.
const maxMessage = 1 << 20

// writeTimeout bounds one write. The peer reads all the time, so a write that blocks this long found a peer that hangs.
const writeTimeout = 5 * time.Second

// Conn carries messages and descriptors over a unix stream socket. One goroutine may read while others write.
type Conn struct {
	unix *net.UnixConn

	writing sync.Mutex

	// Of the reader: bytes not yet parsed, and descriptors that came with them, in order.
	pending []byte
	files   []*os.File
}

// NewConn takes over c.
func NewConn(c *net.UnixConn) *Conn { return &Conn{unix: c} }

// Close ends the connection and closes descriptors that no one took. It unblocks a reader.
func (c *Conn) Close() error { return c.unix.Close() }

// SendReport writes r, and lock with it where it is not nil.
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
	// The descriptor travels with the first byte, so it is there before its line is complete.
	n, _, err := c.unix.WriteMsgUnix(line, rights, nil)
	if err == nil && n < len(line) {
		_, err = c.unix.Write(line[n:])
	}
	if err != nil {
		return fmt.Errorf("send message: %w", err)
	}
	return nil
}

// ReadReport blocks for the next report. The descriptor, where one came with it, is the caller's to close.
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

// ReadOrder blocks for the next order.
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

// line returns the next line and collects the descriptors that came with it or with what follows it: the kernel may hand
// out a message together with the descriptor of the next one, so a message says itself whether it has one.
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

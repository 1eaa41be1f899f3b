package launch

import (
	"context"
	"os"
	"sync"
	"time"

	"github.com/etcd-druid/druid/internal/crash"
)

// session is one connection of launch: a reader that never blocks on the Decider, so that a launch that goes away is
// seen at once, and at most one question to the Decider at a time.
type session struct {
	*Server
	conn *Conn

	asking sync.WaitGroup
	cancel context.CancelFunc // of the question under way
}

// serve reads reports until the connection breaks. It returns only when the Decider let go of the volume.
func (s *Server) serve(ctx context.Context, conn *Conn) error {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	session := &session{Server: s, conn: conn, cancel: func() {}}
	defer func() {
		stop()
		cancel()
		_ = conn.Close()
		session.asking.Wait()
		last, _ := s.State()
		s.set(nil, Status{Report: last.Report})
	}()
	s.log.InfoContext(ctx, "launch connected")
	for {
		report, lock, err := conn.ReadReport()
		if err != nil {
			return err
		}
		s.set(conn, Status{Connected: true, Report: report})
		session.handle(ctx, report, lock)
	}
}

func (s *session) handle(ctx context.Context, report Report, lock *os.File) {
	s.log.InfoContext(ctx, "launch reported", "mode", report.State, "err", report.Error)
	// Whatever launch says now, its former question is settled.
	s.cancel()
	s.asking.Wait()
	ctx, s.cancel = context.WithCancel(ctx)
	switch {
	case report.State == StateIdle && lock != nil:
		s.asking.Go(func() { s.ask(ctx, Idle{Report: report, Lock: lock}) })
		return
	case report.State == StateIdle:
		s.log.WarnContext(ctx, "launch came without lock")
	case report.State == StateStopping:
		s.asking.Go(func() { s.release(ctx) })
	}
	closeFile(lock)
}

// ask gets a start order from the Decider and sends it, after the agent let go of the volume: from then on it is etcd's.
func (s *session) ask(ctx context.Context, idle Idle) {
	defer closeFile(idle.Lock)
	inform := func(o Order) {
		o.Kind = OrderWait
		s.send(ctx, o)
	}
	for {
		order, err := s.decider.Next(ctx, idle, inform)
		if ctx.Err() != nil {
			return
		}
		if err == nil && order.Kind == OrderStart {
			closeFile(idle.Lock)
			crash.Before("order-start")
			s.send(ctx, order)
			crash.After("order-start")
			return
		}
		s.log.WarnContext(ctx, "start not decided", "err", err)
		if err != nil {
			inform(Order{Reason: err.Error()})
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(retryNext):
		}
	}
}

// release lets the Decider move leadership away, then lets launch go on.
func (s *session) release(ctx context.Context) {
	bounded, cancel := context.WithTimeout(ctx, StopGrace)
	defer cancel()
	s.decider.Stopping(bounded)
	crash.Before("order-proceed")
	s.send(ctx, Order{Kind: OrderProceed})
	crash.After("order-proceed")
}

// send drops the connection where it fails: launch dials again and reports again what it does.
func (s *session) send(ctx context.Context, o Order) {
	if err := s.conn.SendOrder(o); err != nil && ctx.Err() == nil {
		s.log.WarnContext(ctx, "order not sent", "rule", o.Kind, "err", err)
		_ = s.conn.Close()
	}
}

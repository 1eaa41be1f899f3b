package webui

import (
	"context"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"net/http"
	"time"
)

// follow sends the parts of a page that changed, as server-sent events, until the page is closed.
func follow(w http.ResponseWriter, r *http.Request, look func(context.Context) ([]part, time.Duration, error)) {
	w.Header().Set("Content-Type", "text/event-stream")
	stream, sent := http.NewResponseController(w), map[string]template.HTML{}
	for {
		parts, pause, err := look(r.Context())
		if err == nil && r.Context().Err() == nil {
			err = send(w, parts, sent)
		}
		if err != nil || r.Context().Err() != nil || stream.Flush() != nil {
			return
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-r.Context().Done():
			timer.Stop()
			return
		}
	}
}

// send writes an event for each part that is not as sent has it. A stream on which nothing comes has ended for some proxies, so a comment comes
// if nothing changed.
func send(w io.Writer, parts []part, sent map[string]template.HTML) error {
	written := false
	for _, p := range parts {
		if before, ok := sent[p.ID]; ok && before == p.HTML {
			continue
		}
		line, err := json.Marshal(p)
		if err != nil {
			return fmt.Errorf("write %s: %w", p.ID, err)
		}
		if _, err := fmt.Fprintf(w, "event: part\ndata: %s\n\n", line); err != nil {
			return err
		}
		sent[p.ID], written = p.HTML, true
	}
	if written {
		return nil
	}
	_, err := io.WriteString(w, ": no change\n\n")
	return err
}

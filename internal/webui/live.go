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

// look reads what a request asks for: the page, and when to read it again.
type look func(context.Context, *http.Request) (layout, time.Duration, error)

// show answers with a page.
func show(read look) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		page, _, err := read(r.Context(), r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		write(w, codeOf(page.frame), page)
	}
}

// follow answers with the changes of a page. HEAD gets the headers only.
func follow(read look) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		if r.Method != http.MethodHead {
			sendChanges(w, r, read)
		}
	}
}

// sendChanges sends the parts of a page that changed, as server-sent events, until the page is closed.
func sendChanges(w http.ResponseWriter, r *http.Request, read look) {
	stream, sent := http.NewResponseController(w), map[string]template.HTML{}
	for {
		page, pause, err := read(r.Context(), r)
		if err == nil && r.Context().Err() == nil {
			err = send(w, page.Parts, sent)
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

// send writes an event for each part that is not as sent has it. A stream on which nothing comes has ended for some
// proxies, so a comment comes if nothing changed.
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

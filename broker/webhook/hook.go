package webhook

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/renameio/v2"

	"tensorturn/domain"
	"tensorturn/domain/event"
	render "tensorturn/projections/feed"
)

// Hook is one webhook as its file holds it.
type Hook struct {
	ID      string       `json:"id"`
	Name    string       `json:"name,omitempty"`
	URL     string       `json:"url"`
	Run     domain.RunID `json:"run,omitempty"`
	Kind    event.Kind   `json:"kind,omitempty"`
	Secret  string       `json:"secret,omitempty"` // told once, when the hook is made
	Created time.Time    `json:"created"`
	After   uint64       `json:"after"` // every event up to here is delivered, dead, or not for this hook
	Dead    []Dead       `json:"dead,omitempty"`
	Stopped string       `json:"stopped,omitempty"`               // why nothing is sent any more
	Failing string       `json:"failing,omitempty"`               // why the present event is not taken yet; not kept
	MadeBy  *Repeat      `json:"made_by,omitempty" hidden:"true"` // in the file alone
}

// Repeat is the idempotency key that a hook was made under and the request that came with it, both hashed: a repetition is
// told the same hook again.
type Repeat struct {
	Key     string `json:"key"`
	Request string `json:"request"`
}

// Dead is an event that the receiver refused again and again. The log has it, so that it can be sent once more.
type Dead struct {
	Seq  uint64    `json:"seq"`
	ID   string    `json:"id"`
	Type string    `json:"type"`
	Why  string    `json:"why"`
	At   time.Time `json:"at"`
}

// told is a copy for people: without what is in the file alone.
func (h Hook) told() Hook {
	h.MadeBy = nil
	h.Dead = append([]Dead(nil), h.Dead...)
	return h
}

// wants reports whether the hook sends the event.
func (h *Hook) wants(m render.Message) bool {
	if h.Run != "" && (m.Kind != event.KindRun || m.Agg != string(h.Run)) {
		return false
	}
	return h.Kind == "" || m.Kind == h.Kind
}

// save replaces the hook's file in one step.
func (h Hook) save(dir string) error {
	h.Failing = ""
	b, err := json.MarshalIndent(h, "", "  ")
	if err != nil {
		return err
	}
	if err := renameio.WriteFile(filepath.Join(dir, h.ID+".json"), append(b, '\n'), 0o600, renameio.IgnoreUmask()); err != nil {
		return domain.Unavailable("keep webhook "+h.ID, "its file could not be stored", "free disk space or fix the directory's owner", err)
	}
	return nil
}

// load reads every hook of the directory, by name of the file.
func load(dir string) ([]*Hook, error) {
	files, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, domain.Unavailable("read webhooks", "the directory cannot be read", "fix its owner", err)
	}
	var out []*Hook
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".json") {
			continue
		}
		b, err := os.ReadFile(filepath.Join(dir, f.Name()))
		h := &Hook{}
		if err == nil {
			err = json.Unmarshal(b, h)
		}
		if err != nil || h.ID+".json" != f.Name() {
			return nil, domain.Integrity("read webhooks", f.Name()+" is damaged", "remove the file and create the webhook anew")
		}
		out = append(out, h)
	}
	return out, nil
}

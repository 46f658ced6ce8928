package webhook

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
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
	Sum     string       `json:"sum,omitempty" hidden:"true"`     // see sum; in the file alone

	lost bool // its file is damaged: where it sends and how far it was is not known
}

// Limits of hooks' files.
const maxFile = 4 << 20 // MaxDead events, each with a reason

// sum is the CRC-32 of the rest: a changed digit of After would leave events out, or send them again, without a word.
func (h Hook) sum() (string, error) {
	h.Sum = ""
	b, err := json.Marshal(h)
	return fmt.Sprintf("%08x", crc32.ChecksumIEEE(b)), err
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
	h.MadeBy, h.Sum = nil, ""
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
	if h.lost {
		return nil // what is left of its file stays for its owner
	}
	h.Failing = ""
	sum, err := h.sum()
	if err != nil {
		return err
	}
	h.Sum = sum
	b, err := json.MarshalIndent(h, "", "  ")
	if err != nil {
		return err
	}
	if err := renameio.WriteFile(filepath.Join(dir, h.ID+".json"), append(b, '\n'), 0o600, renameio.IgnoreUmask()); err != nil {
		return domain.Unavailable("keep webhook "+h.ID, "its file could not be stored", "free disk space or fix the directory's owner", err)
	}
	return nil
}

// load reads every hook of the directory, by name of the file. One whose file is damaged is there and stopped: the others, and the
// hub, go on.
func load(dir string) ([]*Hook, error) {
	files, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, domain.Unavailable("read webhooks", dir+" cannot be read", "move away what is there instead of a folder, or fix its owner", err)
	}
	var out []*Hook
	for _, f := range files {
		id, ok := strings.CutSuffix(f.Name(), ".json")
		if !ok || !domain.ValidID(id) {
			continue
		}
		h, err := read(filepath.Join(dir, f.Name()))
		if err == nil && h.ID != id {
			err = errors.New("it is another webhook's")
		}
		if err != nil {
			h = &Hook{ID: id, lost: true, Stopped: domain.Clip("its file "+f.Name()+" is damaged ("+err.Error()+"): remove it and create it anew", domain.MaxReasonLength)}
		}
		out = append(out, h)
	}
	return out, nil
}

func read(path string) (*Hook, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(b) > maxFile {
		return nil, fmt.Errorf("more than %d bytes", maxFile)
	}
	h := &Hook{}
	if err := json.Unmarshal(b, h); err != nil {
		return nil, err
	}
	if sum, err := h.sum(); err != nil || h.Sum != "" && h.Sum != sum {
		return nil, errors.New("its checksum is wrong")
	}
	return h, nil
}
